#include <cmath>

#include "audit/ops/op_bounds.h"

namespace culprit {

double constant_error(const BoundCall& call) {
  const double rounded = round_to(call.dtype, call.node.factor);
  return std::abs((call.node.factor - rounded) / rounded);
}

// One product, rounded to the dtype, and before that inside the op where its arithmetic is wider; one rounding of the auditor's own. A
// weight is in the dtype already; a constant may be held in another form.
std::vector<double> scale_bounds(const BoundCall& call) {
  const double inside = call.units.step < call.units.unit ? call.units.step : 0x1p-53;
  const double relative = compounded(1, call.units.unit, inside + (call.node.weight.empty() ? constant_error(call) : 0));
  std::vector<double> bounds(call.value.values.size());
  for (std::size_t i = 0; i < bounds.size(); ++i) bounds[i] = relative * std::abs(call.value.values[i]) + call.units.eta;
  return bounds;
}

}  // namespace culprit
