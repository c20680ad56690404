#include <cmath>

#include "audit/ops/op_bounds.h"

namespace culprit {

// y = g sigmoid(g) h with each of the three steps rounded to the dtype. sigmoid needs exp(-g), whose relative error grows with its
// argument: reduction to [-ln 2 / 2, ln 2 / 2] subtracts a multiple of ln 2 that is known to v relative, so |g| v; 8 v for the
// polynomial, the addition, the division and the products. A subnormal sigmoid errs by eta, which |g h| scales; a subnormal
// g sigmoid(g) by eta, which |h| scales.
// Where the steps inside sigmoid are declared to round to the dtype as well, z = exp(-|g|) in f32, 1 + z, its reciprocal y and, for g > 0,
// 1 - y add one rounding each, the last three in place of sigmoid's own: relative errors of y reach 1 - y times y / (1 - y) <= 1.
// A precise one is rounded once, and its two products err by a step each before that.
std::vector<double> swiglu_bounds(const BoundCall& call) {
  const auto& units = call.units;
  const double step = units.in_dtype ? units_of(call.dtype, {}).step : units.step;
  const int roundings = call.node.precise ? 1 : units.in_dtype ? 6 : 3;
  const double products = call.node.precise ? 2 * step : 0;
  const auto& gate = call.inputs[0].values;
  const auto& up = call.inputs[1].values;
  std::vector<double> bounds(call.value.values.size());
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    const double g = std::abs(gate[i]);
    const double h = std::abs(up[i]);
    bounds[i] = compounded(roundings, units.unit, (8 + g) * step + products) * std::abs(call.value.values[i]) + units.eta * (g * h + h + 1);
  }
  return bounds;
}

// The threshold is judged with exp's own error, as above, in f32: an engine evaluates exp of narrow types there.
std::vector<bool> swiglu_may_vanish(const Array& gate, DType dtype) {
  const double step = units_of(dtype, {}).step;
  const double threshold = sigmoid_vanishes_from(dtype);
  std::vector<bool> may_vanish(gate.values.size());
  for (std::size_t i = 0; i < may_vanish.size(); ++i) {
    const double g = gate.values[i];
    may_vanish[i] = g < 0 && std::exp(-g) * (1 + (8 - g) * step) >= threshold;
  }
  return may_vanish;
}

}  // namespace culprit
