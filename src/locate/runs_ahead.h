#pragma once
// Runs that are made ahead of need on a second process of the engine, while the first makes others. A run has the same outcome in either
// process, so nothing depends on which of them made it; a run that fails here counts as not made.
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/plan.h"
#include "engine/registry.h"

namespace culprit {

class RunsAhead {
 public:
  struct Wanted {
    std::string key;  // what take() asks for
    RunPlan plan;
  };
  struct Done {
    std::filesystem::path trace;
    double seconds = 0;
  };
  struct Limits {
    std::chrono::seconds start, load, run;
  };

  /// Begins at the last of `wanted` and goes backwards. Traces and logs go below `work`.
  RunsAhead(EngineInfo engine, std::filesystem::path work, LoadPlan load, std::vector<Wanted> wanted, Limits limits);
  /// Begins no other run, and waits for the one at hand.
  ~RunsAhead();
  RunsAhead(const RunsAhead&) = delete;
  RunsAhead& operator=(const RunsAhead&) = delete;

  /// The run of that key, once it is made; none when it was not begun, which it will not be any more, or has failed.
  [[nodiscard]] std::optional<Done> take(const std::string& key);

 private:
  enum class State { waiting, running, done, failed };
  struct Item {
    Wanted wanted;
    State state = State::waiting;
    Done done = {};
  };
  void work();
  [[nodiscard]] Item* begin_next();

  EngineInfo engine_;
  std::filesystem::path work_;
  LoadPlan load_;
  Limits limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Item> items_;  // its states are guarded
  bool stop_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace culprit
