#include <cmath>

#include "audit/ops/op_bounds.h"

namespace culprit {
namespace {

/// 1 / cosh(x)^2 for x >= 0, without overflow.
double sech_squared(double x) {
  const double e = std::exp(-2 * x);
  return 4 * e / ((1 + e) * (1 + e));
}

}  // namespace

// y = g / 2 (1 + tanh z) h with z = k (g + a g^3). Inside, z errs by 8 v relative: the cube (2), both constants, both products and the sum,
// whose terms have one sign. The derivative of tanh falls with |z|, so tanh errs by at most |z| d sech^2(|z| (1 - d)) where z errs by d,
// and by 4 v |tanh z| of its own (2.7 v measured on MLX 0.32.4). For negative z the sum 1 + tanh z cancels, so that error is absolute: it
// is what |g h / 2| scales. The sum and its product with g are within 4 v. Then two roundings to the dtype: of gelu(g), and of its product
// with h.
//
// Where the steps inside are declared to round to the dtype as well: the cube, a, its product, the sum, k and the product add a rounding each
// to z; tanh is rounded; then 1 + tanh z, the products with g and with h. Each may be subnormal: the three inside z and tanh err by eta each,
// which |g h / 2| scales; g / 2 by eta, which 2 |h| scales; gelu(g) by eta, which |h| scales.
std::vector<double> geglu_bounds(const BoundCall& call) {
  const auto& units = call.units;
  const double step = units.in_dtype ? units_of(call.dtype, {}).step : units.step;
  const double of_z = units.in_dtype ? compounded(6, units.unit, 8 * step) : 8 * step;
  const double of_tanh = units.in_dtype ? compounded(1, units.unit, 4 * step) : 4 * step;
  const double relative = compounded(units.in_dtype ? 3 : 2, units.unit, 4 * step);
  const auto& gate = call.inputs[0].values;
  const auto& up = call.inputs[1].values;
  std::vector<double> bounds(call.value.values.size());
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    const double g = std::abs(gate[i]);
    const double h = std::abs(up[i]);
    if (!std::isfinite(g * h)) {  // the result is infinite or no number, and so must the engine's be
      bounds[i] = HUGE_VAL;
      continue;
    }
    const double z = kGeluScale * (g + kGeluCubic * g * g * g);
    const double moved = z * of_z * sech_squared(z * (1 - of_z)) + std::tanh(z) * of_tanh;
    bounds[i] = relative * std::abs(call.value.values[i]) + g * h / 2 * moved * (1 + relative) + units.eta * (2 * g * h + 3 * h + 1);
  }
  return bounds;
}

}  // namespace culprit
