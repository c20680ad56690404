#include <cmath>

#include "audit/ops/op_bounds.h"

namespace culprit {

// y = x r w with r = 1 / sqrt(m + epsilon) and m the mean of n squares. The squares have one sign, so the sum's relative error is gamma_n,
// and the square root halves it. The division by n, the addition of epsilon, the root and its reciprocal (rsqrt within 2.5 v on the
// engines measured) and the product with x are within 8 v. Then two roundings to the dtype: x r, and its product with w. A subnormal x r
// errs by eta, which w scales. A weight of 1 + w may be rounded to the dtype as well.
// Without a weight x r is the result: one rounding.
std::vector<double> rms_norm_bounds(const BoundCall& call) {
  const auto& units = call.units;
  const auto channels = call.value.shape.back();
  auto weight = call.node.unscaled ? std::vector<double>(static_cast<std::size_t>(channels), 0.0) : call.context.weight.values();
  if (call.node.unit_offset)
    for (auto& value : weight) value += 1;
  const int roundings = call.node.unscaled ? 1 : call.node.unit_offset ? 3 : 2;
  const double relative = compounded(roundings, units.unit, units.sum(channels) / 2 + 8 * units.step);
  std::vector<double> bounds(call.value.values.size());
  for (std::size_t i = 0; i < bounds.size(); ++i)
    bounds[i] = relative * std::abs(call.value.values[i]) + units.eta * (std::abs(weight[i % weight.size()]) + 1);
  return bounds;
}

}  // namespace culprit
