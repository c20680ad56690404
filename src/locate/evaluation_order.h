#pragma once
// Whether results depend on when the engine evaluates: a fact about runs, with the smallest place that was found by bisection. It is no proof
// of a race: fusion that depends on what is evaluated together does the same.
#include <functional>
#include <string>
#include <vector>

#include "decode/graph.h"
#include "locate/explore.h"
#include "locate/session.h"
#include "locate/verdict.h"

namespace culprit {

/// Compares, bit for bit, the arm "alone" with the arms that differ from it in evaluation only; then all of them again with only the logits
/// recorded, so that other tensors are let go after their last use and their memory may serve again. Where two differ, both are repeated; if
/// either does not repeat, that is what is reported. Else it is bisected, over the nodes after which the engine evaluates (or over the taps
/// that are recorded), which of them changes the result. Makes four runs when nothing depends on it, and about 4 log2(nodes) more for each
/// order that does. Error ids: those of Session::run.
[[nodiscard]] Result<std::vector<OrderFinding>> order_findings(Session& session, const Graph& graph, const Exploration& exploration,
                                                               const std::function<void(const std::string&)>& progress = {});

/// "result depends on evaluation order (each_op against lazy): evaluating layers.1.attn_norm before layers.1.q changes it, at step 2 alone;
/// layers.1.attn_norm@0 differs first; repeatable: 3 of 3 runs of the one, 3 of 3 of the other; this does not prove a race"
[[nodiscard]] std::string to_text(const OrderFinding& finding);

}  // namespace culprit
