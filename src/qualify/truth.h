#pragma once
// What planted faults really did to the runs of an engine: found by asking each fault again, at every call that was recorded, what it would
// change there. Neither bounds nor the audit, nor what find thinks, take part in it.
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "audit/weights.h"
#include "decode/model.h"
#include "engine/registry.h"
#include "fault/fault.h"
#include "locate/explore.h"
#include "locate/ledger.h"
#include "qualify/score.h"

namespace culprit {

/// Runs with one set of planted faults, everything recorded.
class PlantedRuns {
 public:
  /// `model` must outlive this.
  PlantedRuns(const Model& model, DType dtype, std::vector<FaultSpec> faults)
      : model_(model), weights_(std::make_unique<ModelWeights>(model, dtype)), faults_(std::move(faults)) {}

  void add(RunPlan plan, std::shared_ptr<const Trace> trace);
  [[nodiscard]] std::size_t size() const { return runs_.runs.size(); }

  /// Rebuilds every call that a fault can break. Places: a place is bad when the planted fault, given the call's recorded inputs, changes a
  /// bit of it; a cache's place stays bad until its position is written again. Error ids: those of the trace and of evaluate_node.
  [[nodiscard]] Result<void> ask_faults();
  /// Kinds of op with a bad place.
  [[nodiscard]] const std::set<Op>& broken_ops() const { return broken_; }
  /// Every place of `op`, bad or not.
  [[nodiscard]] Places places(Op op) const;
  /// Whether `spec` makes the same of every recorded call of `op` as the planted faults do, bit for bit.
  [[nodiscard]] Result<bool> same_as_planted(Op op, const FaultSpec& spec);

 private:
  [[nodiscard]] bool may_break(Op op) const;
  [[nodiscard]] Result<void> ask_faults_at(AuditedRun& run, int node);

  const Model& model_;
  std::unique_ptr<ModelWeights> weights_;
  std::vector<FaultSpec> faults_;
  Exploration runs_;
  std::set<Op> broken_;
};

/// The runs of a find before it began to prove: the planted faults, no intervention, everything recorded.
[[nodiscard]] std::vector<const Entry*> exploring_entries(const Ledger& ledger, const std::vector<FaultSpec>& faults);

}  // namespace culprit
