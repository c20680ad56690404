#pragma once
// The main job: explore, locate, explain, prove, and again for what is left. One call, no hint about the op.
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "decode/cache_spec.h"
#include "engine/registry.h"
#include "fault/fault.h"
#include "locate/verdict.h"

namespace culprit {

struct FindOptions {
  EngineInfo engine;
  std::filesystem::path model;
  std::string model_name;  // as the user said it
  DType dtype = DType::f32;
  CacheSpec cache;                        // of the arms that are not about another one
  std::vector<FaultSpec> faults;          // planted into the engine; a fault with contents left open is planted with each in turn
  std::vector<std::vector<int>> prompts;  // token ids; empty: random ones from `seed`. Fewer than three are filled up with random ones
  std::uint64_t seed = 1;
  std::string
      proof_arm;  // where to prove and to measure the damage, if it shows the defect; empty: where a broken relation is furthest apart
  std::string suspects;                         // names separated by commas (locate/suspects.h), each tested alone; empty: none
  std::optional<std::chrono::seconds> timeout;  // for loading, and for each run; that of SessionLimits by default
  std::filesystem::path work;                   // for traces and logs; made if missing
  std::function<void(const std::string&)> progress;
};

/// Error ids: those of the model's reader; tokens-invalid; suspect-unknown; file-write; interrupted. A verdict is a value, whatever it says: an engine that
/// fails, or does not offer what is needed, is one.
[[nodiscard]] Result<Verdict> find(const FindOptions& options);

}  // namespace culprit
