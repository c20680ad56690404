#include <cmath>

#include "audit/ops/op_bounds.h"

namespace culprit {

// One addition, rounded inside the op and then to the dtype (two roundings where an engine adds bf16 in f32).
std::vector<double> add_bounds(const BoundCall& call) {
  const double relative = compounded(1, call.units.unit, call.units.step);
  std::vector<double> bounds(call.value.values.size());
  for (std::size_t i = 0; i < bounds.size(); ++i) bounds[i] = relative * std::abs(call.value.values[i]) + call.units.eta;
  return bounds;
}

}  // namespace culprit
