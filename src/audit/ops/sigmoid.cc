#include <cmath>

#include "audit/ops/op_bounds.h"

namespace culprit {
namespace {

// Relative error of sigmoid(x) = 1 / (1 + exp(-x)), as swiglu.cc derives it: (8 + |x|) steps, and its roundings to the dtype, of which there
// are four where the steps inside are declared to be rounded too.
double sigmoid_error(const BoundCall& call, double x, int more_roundings) {
  const double step = call.units.in_dtype ? units_of(call.dtype, {}).step : call.units.step;
  return compounded((call.units.in_dtype ? 4 : 1) + more_roundings, call.units.unit, (8 + std::abs(x)) * step);
}

}  // namespace

std::vector<double> sigmoid_bounds(const BoundCall& call) {
  std::vector<double> bounds(call.value.values.size());
  for (std::size_t i = 0; i < bounds.size(); ++i)
    bounds[i] = sigmoid_error(call, call.inputs[0].values[i], 0) * std::abs(call.value.values[i]) + call.units.eta;
  return bounds;
}

// One product more; a subnormal sigmoid errs by eta, which |x| scales.
std::vector<double> silu_bounds(const BoundCall& call) {
  std::vector<double> bounds(call.value.values.size());
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    const double x = std::abs(call.inputs[0].values[i]);
    bounds[i] = sigmoid_error(call, x, 1) * std::abs(call.value.values[i]) + call.units.eta * (x + 1);
  }
  return bounds;
}

}  // namespace culprit
