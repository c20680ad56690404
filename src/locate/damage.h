#pragma once
// What a located defect does to everything behind it: the run in which it was seen against the same run with its op made right, tap by tap.
#include "locate/explore.h"
#include "locate/verdict.h"

namespace culprit {

/// Compares `bad` with `right`, two runs of one plan but for interventions, record by record: every value that was recorded counts, also
/// those of tokens that are taken back later and of each step that reads a cache. A value [.., token or slot, ..] is affected when `op` was
/// outside its bound in `bad` for the same row at this step or before, at this position or before; elsewhere the defect cannot reach.
/// `right_again`: the right run, made anew, whose difference from `right` is the noise.
/// Norms are computed in float64 from the recorded values: their own rounding is below 1e-12 of them.
/// Error ids: trace-invalid when the two runs did not record the same, cannot-show when `bad` does not show the defect.
[[nodiscard]] Result<Damage> damage_between(const Graph& graph, Op op, const AuditedRun& bad, const Made& right, const Made& right_again);

/// The same, with one run more of the engine for `right_again`.
[[nodiscard]] Result<Damage> measure_damage(Session& session, const Graph& graph, Op op, const AuditedRun& bad, const AuditedRun& right);

/// What a person reads first: the defect's own taps in the first layer that has it, what lies behind them in that layer, the residual of the
/// next layer and of the last one, and the logits.
[[nodiscard]] std::vector<const TapDamage*> main_taps(const Damage& damage);

}  // namespace culprit
