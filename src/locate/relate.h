#pragma once
// What became of a relation between two arms: their logits, aligned by (sequence, position since the base), with argmax flips.
#include "arm/arms.h"
#include "locate/explore.h"
#include "locate/ledger.h"
#include "locate/verdict.h"

namespace culprit {

/// Compares the logits of two runs. The ledger must allow the contrast; otherwise `refused` says why and nothing is compared.
[[nodiscard]] Result<RelationOutcome> relate(const Ledger& ledger, const std::string& name, const Made& expected,
                                             const RunPlan& expected_plan, const Made& actual, const RunPlan& actual_plan);

/// Every relation whose two arms were run.
[[nodiscard]] Result<std::vector<RelationOutcome>> relate_all(const Ledger& ledger, const Exploration& exploration);

/// "differ by 3.21 at most over 6 positions; argmax flips at position 260 (785 instead of 439, margin 0.41)"
[[nodiscard]] std::string to_text(const RelationOutcome& outcome);

}  // namespace culprit
