#pragma once
// One function an op: how far legal arithmetic may take each element of its output from the float64 result.
#include <vector>

#include "audit/bounds.h"
#include "decode/node_eval.h"

namespace culprit {

/// One op as it ran, with its float64 result.
struct BoundCall {
  const Node& node;
  const std::vector<Array>& inputs;
  const NodeContext& context;
  const Array& value;
  DType dtype;
  Units units;
};

// Each gives bounds in the order of call.value. embedding, cache_write and select_head move values: their bound is 0, and needs no function. Linear ops
// are done in bulk: audit/ops/linear.h.
[[nodiscard]] std::vector<double> scale_bounds(const BoundCall& call);
[[nodiscard]] std::vector<double> rms_norm_bounds(const BoundCall& call);
[[nodiscard]] std::vector<double> rope_bounds(const BoundCall& call);
[[nodiscard]] std::vector<double> sdpa_bounds(const BoundCall& call);
[[nodiscard]] std::vector<double> swiglu_bounds(const BoundCall& call);
[[nodiscard]] std::vector<double> geglu_bounds(const BoundCall& call);
[[nodiscard]] std::vector<double> add_bounds(const BoundCall& call);
[[nodiscard]] std::vector<double> softcap_bounds(const BoundCall& call);
[[nodiscard]] std::vector<double> multiply_bounds(const BoundCall& call);
[[nodiscard]] std::vector<double> sigmoid_bounds(const BoundCall& call);
[[nodiscard]] std::vector<double> silu_bounds(const BoundCall& call);
[[nodiscard]] std::vector<double> route_bounds(const BoundCall& call);
[[nodiscard]] std::vector<double> expert_sum_bounds(const BoundCall& call);
[[nodiscard]] std::vector<double> causal_conv_bounds(const BoundCall& call);
[[nodiscard]] std::vector<double> l2_norm_bounds(const BoundCall& call);
[[nodiscard]] std::vector<double> delta_decay_bounds(const BoundCall& call);
[[nodiscard]] std::vector<double> delta_state_bounds(const BoundCall& call);
[[nodiscard]] std::vector<double> delta_out_bounds(const BoundCall& call);

/// Routing weights of a legal choice of experts: where shares are so near to each other that rounding decides which are the largest, the
/// choice is that of `actual`, the engine's weights [row, token, expert].
[[nodiscard]] Array route_as_chosen(const Array& scores, const Array& actual, int used, bool normalised, const Units& units);

/// Relative distance of the node's constant from its value in the dtype: an engine may hold it in either form, or between.
[[nodiscard]] double constant_error(const BoundCall& call);

/// Elements whose sigmoid may legally vanish, at the price of precision: 1 / (1 + exp(-x)) is 0 once exp(-x) overflows the dtype. In order
/// of the output.
[[nodiscard]] std::vector<bool> swiglu_may_vanish(const Array& gate, DType dtype);

}  // namespace culprit
