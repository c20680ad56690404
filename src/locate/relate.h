#pragma once
// What became of a relation between two arms: their logits, aligned by (sequence, position since the base), with argmax flips.
#include "arm/arms.h"
#include "locate/explore.h"
#include "locate/ledger.h"
#include "locate/verdict.h"

namespace culprit {

/// Logits of one position in the dtype in which they were recorded.
struct Logits {
  std::vector<double> values;
  DType dtype;
};
struct Flip {
  int expected_id = -1, actual_id = -1;  // -1: no logit of that side is a number
  double margin = 0;                     // the smaller top-2 margin of the two sides
  bool tie = false;
};
/// Nothing when both sides choose the same id, or neither holds a number. What is a tie: as `relate` has it.
[[nodiscard]] Result<std::optional<Flip>> flip_between(const Logits& expected, const Logits& actual);

/// Compares the logits of two runs. The ledger must allow the contrast; otherwise `refused` says why and nothing is compared. A flip is a
/// tie when one side holds both ids equal, or when one rounding of each logit to its dtype can cause it. Where only one side's logits are
/// all NaN, that is a flip and no tie. Error ids: tensor-layout when the numbers of logits differ, trace-invalid.
[[nodiscard]] Result<RelationOutcome> relate(const Ledger& ledger, const std::string& name, const Made& expected,
                                             const RunPlan& expected_plan, const Made& actual, const RunPlan& actual_plan);

/// Each of `relations` whose two arms were run.
[[nodiscard]] Result<std::vector<RelationOutcome>> relate_all(const Ledger& ledger, const Exploration& exploration,
                                                              const std::vector<Relation>& relations);

/// Decided flips weigh more than any distance, NaN is further than any number; false for equals.
[[nodiscard]] bool further_apart(const RelationOutcome& outcome, const RelationOutcome& other);

/// "logits differ by 3.21 at most over 6 positions; 1 argmax flip, first at position 260 (785 instead of 439, margin 0.41); 2 argmax flips
/// within rounding (ties)"
[[nodiscard]] std::string to_text(const RelationOutcome& outcome);

}  // namespace culprit
