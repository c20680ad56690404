#pragma once
// Walks the decode graph on an engine's ops: schedules, caches, taps, faults and interventions.
#include <filesystem>
#include <functional>

#include "engine/plan.h"
#include "engines/kit/backend.h"
#include "engines/kit/weight_set.h"

namespace culprit::kit {

struct RunOutcome {
  int steps = 0;
  std::vector<std::vector<int>> argmax;  // [step][row], of the last token
};

/// Runs `plan` on what is loaded and writes its trace. Error ids: plan-invalid, tokens-invalid, tap-unknown, not-supported, engine-error,
/// file-write, engine-disk.
[[nodiscard]] Result<RunOutcome> run_graph(Backend& backend, WeightSet& weights, const RunPlan& plan, const Json& hello,
                                           const std::filesystem::path& trace, const std::function<void(int step)>& on_step);

/// Runs one node without a model: the kit's reshapes around the backend's op. `rank` 3 collapses [row, head, ..] for RoPE.
struct NodeRun {
  const Node* node = nullptr;
  const Facts* facts = nullptr;
  std::string variant;
  std::vector<Array> inputs;
  const BackendWeight* weight = nullptr;
  Array bias;
  DType dtype = DType::f32;
  std::vector<std::vector<int>> tokens;
  std::vector<std::int64_t> offset;
  bool causal = false;
  Array mask;  // as in OpRequest
  int rank = 4;
};
[[nodiscard]] Result<Array> run_node(Backend& backend, const NodeRun& run);

}  // namespace culprit::kit
