#pragma once
// One op in float64 with the bound of what legal arithmetic may add, element by element.
#include <vector>

#include "audit/audit.h"
#include "base/result.h"
#include "decode/node_eval.h"

namespace culprit {

struct Bounded {
  Array value;                   // float64 result
  std::vector<double> bound;     // on |actual - value|, same order: what the arithmetic as declared may add
  std::vector<double> standard;  // the same for the default arithmetic; empty when it is `bound`
  std::vector<bool> may_vanish;  // elements that may be 0 instead, at the price of precision; empty when none
  std::vector<bool> untested;    // elements of which nothing is said; empty when none
};

/// `inputs` and `context` as for evaluate_node; `dtype` is the dtype of the output. `magnitude`: of a linear op whose weight is computed from
/// parts (QuantizedValues). `actual`: what the engine has, where an op may choose between results that are equally right (Op::route).
[[nodiscard]] Result<Bounded> bounded_node(const Node& node, const std::vector<Array>& inputs, const NodeContext& context, DType dtype,
                                           const Arithmetic& arithmetic, const Tensor& magnitude = {}, const Array* actual = nullptr);

}  // namespace culprit
