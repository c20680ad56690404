#pragma once
// One node of the graph in float64 from given inputs: used by the reference engine, by the `exact` intervention and by predictions.
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "decode/cache_spec.h"
#include "decode/graph.h"
#include "decode/ops.h"

namespace culprit {

/// What a node needs besides its input tensors.
struct NodeContext {
  const Facts* facts = nullptr;
  std::vector<std::vector<int>> tokens;  // of this step, [row][token]
  Coordinates at;                        // of this step
  DType dtype = DType::f64;              // of the run: constants of the graph are rounded to it
  Tensor weight;                         // the node's weight as used, dense; empty when the node has none
  Tensor bias;                           // likewise
  // What an op with a state had before this step; empty at the first. cache_write: the cache [row, kv_head, slots before, channel];
  // causal_conv: the last kernel - 1 tokens, 0 where there were none [row, 1, kernel - 1, channel]; delta_state: the state [row, head, 1,
  // value channel * key channel], or the state before each token of this step [row, head, token, ..].
  Tensor cache;
  std::vector<std::vector<std::int64_t>> cache_slot;  // its positions, as Coordinates::slot; empty: x is appended to it
  CacheSpec cache_spec;                               // a quantised one stores x as quantise_groups does it, in the dtype of the run
};

/// `inputs` in the order of node.inputs. cache_write: each slot of at.slot holds what was written for its position, dead ones what lies at
/// their place in concat(cache, x); without cache_slot, concat(cache, x) on the slot axis. Error ids: tensor-layout when shapes do not fit.
[[nodiscard]] Result<Array> evaluate_node(const Node& node, const std::vector<Array>& inputs, const NodeContext& context);

}  // namespace culprit
