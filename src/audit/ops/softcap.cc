#include <cmath>

#include "audit/ops/op_bounds.h"

namespace culprit {

// y = c tanh(x / c) with each of the three steps rounded to the dtype; inside, the quotient and the product are within v each and tanh
// within 4 v (see geglu). |t sech^2(t) / tanh(t)| <= 1, so a relative error of x / c is no larger in y, and one of c neither. A subnormal
// quotient or tanh errs by eta, which c scales.
std::vector<double> softcap_bounds(const BoundCall& call) {
  const auto& units = call.units;
  const double step = units.in_dtype ? units_of(call.dtype, {}).step : units.step;
  const double relative = compounded(3, units.unit, 8 * step + constant_error(call));
  const double absolute = units.eta * (2 * std::abs(call.node.factor) + 1);
  std::vector<double> bounds(call.value.values.size());
  for (std::size_t i = 0; i < bounds.size(); ++i) bounds[i] = relative * std::abs(call.value.values[i]) + absolute;
  return bounds;
}

}  // namespace culprit
