#pragma once
// Precision findings: ops that lose more than their declared arithmetic, but only by rounding values. They stand beside any verdict.
#include "locate/explore.h"
#include "locate/verdict.h"

namespace culprit {

/// One finding for each op and variant with outputs that are imprecise; the effect on the logits is measured by making the op exact in
/// the arm that is worst.
[[nodiscard]] Result<std::vector<PrecisionFinding>> precision_findings(Session& session, const Model& model, UsedWeights& weights,
                                                                       const Exploration& exploration);

}  // namespace culprit
