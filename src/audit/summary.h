#pragma once
// How tight the bounds are: the largest error / bound by op, variant and dtype. docs/bounds.md is made from it (scripts/null-campaign).
#include <string>
#include <vector>

#include "audit/audit.h"

namespace culprit {

struct BoundSummary {
  Op op = Op::add;
  std::string variant;
  DType dtype = DType::f32;
  std::int64_t outputs = 0;  // op outputs: a tap at a step
  std::int64_t judged = 0;   // elements: within or outside, not vacuous
  std::int64_t vacuous = 0;
  std::int64_t precision = 0;
  std::int64_t over = 0;
  double ratio_max = 0;           // error / bound; 0 for ops that only move values
  double rounding_ratio_max = 0;  // the same where one rounding to the dtype is at least a quarter of the bound
  bool rounding_seen = false;

  [[nodiscard]] std::string name() const;  // "linear.quantized"
};

/// One summary for each op, variant and dtype that was tested, in the order of all_ops().
[[nodiscard]] std::vector<BoundSummary> summarise(const Graph& graph, const std::vector<const AuditReport*>& reports);

}  // namespace culprit
