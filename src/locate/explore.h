#pragma once
// Exploration: runs the arms, audits every op of every run, and keeps what was seen in the form that condition, explanation and proof need.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arm/arms.h"
#include "audit/audit.h"
#include "locate/condition.h"
#include "locate/explain.h"
#include "locate/session.h"

namespace culprit {

struct AuditedRun {
  Arm arm;
  Made made;
  AuditReport report;
};

/// Everything that one exploration saw.
struct Exploration {
  std::vector<AuditedRun> runs;
  std::optional<Error> failure;      // of the engine, in an arm; it ended the exploration, and the runs before it stand
  std::vector<std::string> skipped;  // arms that were not run, with the reason

  [[nodiscard]] const AuditedRun* find(const std::string& arm) const;
  /// Kinds of op with a corruption, in graph order of their first one.
  [[nodiscard]] std::vector<Op> corrupted_ops(const Graph& graph) const;
  /// Every judged place of `op`.
  [[nodiscard]] std::vector<Observation> observations(const Graph& graph, Op op) const;
  /// Every recorded output of `op`.
  [[nodiscard]] std::vector<RecordedOp> records(const Graph& graph, Op op) const;
};

/// Every recorded output of `op` in one run.
[[nodiscard]] std::vector<RecordedOp> records_of(const AuditedRun& run, const Graph& graph, Op op);

/// Arithmetic that the engine's hello declares, by op, for the variants of `plan`.
[[nodiscard]] AuditOptions audit_options(const Json& hello);

/// Roles as globs over every layer: "q_rope" is "layers.*.q_rope"; a tap outside of the layers is itself.
[[nodiscard]] std::vector<std::string> tap_globs(const std::vector<std::string>& roles, const Graph& graph);

/// The plan with an intervention of this kind at each of these tap globs, at every step.
[[nodiscard]] RunPlan with_interventions(RunPlan plan, Intervention::Kind kind, const std::vector<std::string>& taps);

/// Runs one arm and audits it.
[[nodiscard]] Result<AuditedRun> run_and_audit(Session& session, const Model& model, UsedWeights& weights, const Arm& arm,
                                               const std::string& purpose);

/// Runs `arms` (those that the engine offers) up to an engine failure, then audits all traces together.
[[nodiscard]] Result<Exploration> explore(Session& session, const Model& model, UsedWeights& weights, const std::vector<Arm>& arms,
                                          const std::function<void(const std::string&)>& progress = {});

}  // namespace culprit
