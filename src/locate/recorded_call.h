#pragma once
// Rebuilds the call of an op from a trace, as a fault model or a float64 evaluation needs it.
#include "audit/audit.h"
#include "fault/fault.h"
#include "trace/trace.h"

namespace culprit {

struct RecordedCall {
  OpCall call;
  Tensor magnitude;  // of a weight that the engine computes from parts (QuantizedValues); else empty
};

/// The call of `node` at `step`: inputs with the layouts that the engine had (places of their storage that the view does not reach are NaN,
/// but for a padded cache, whose dead slots hold what was taken back, else zeros by definition, or NaN when poisoned), the context, and what the tap held one step before. `result` is the
/// float64 value rounded once. Error ids: tap-unknown when an input was not recorded.
[[nodiscard]] Result<RecordedCall> recorded_call(const Model& model, UsedWeights& weights, const Trace& trace, int step, const Node& node);

/// `values` laid out in a storage of its own as `layout` says; places that the view does not reach hold `unknown`.
[[nodiscard]] Tensor with_layout(const Tensor& values, const Layout& layout, double unknown);

}  // namespace culprit
