#pragma once
// An engine session: starts the driver, loads a model, makes runs, and enters each in the ledger with its trace. A driver that crashed or
// hung is gone, and every later request ends in the same error.
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arm/arms.h"
#include "engine/driver_process.h"
#include "engine/registry.h"
#include "locate/ledger.h"
#include "locate/runs_ahead.h"
#include "trace/trace.h"

namespace culprit {

/// A run that was made: its ledger entry and its opened trace.
struct Made {
  int entry = 0;
  std::shared_ptr<const Trace> trace;
};

/// What an engine says of a loaded weight.
struct LoadedWeight {
  std::string name;        // canonical
  std::string checkpoint;  // the checkpoint's name
  std::string source_type;
  std::string hash;  // XXH3-128 over the logical f32 values
};

struct SessionLimits {
  std::chrono::seconds start{60};
  std::chrono::seconds load{180};
  std::chrono::seconds run{180};
};

/// Whether an error is the engine's doing: it crashed, hung, printed or wrote what it should not, ran out of space, or refused a request.
[[nodiscard]] bool is_engine_failure(const Error& error);

/// What the driver itself answers with an error has the id engine-error, its own id in the message; engine-* and not-supported stay.
class Session {
 public:
  /// Starts the driver and says hello. Traces and logs go below `work`.
  /// Error ids: those of DriverProcess, engine-garbage when hello lacks a field.
  [[nodiscard]] static Result<std::unique_ptr<Session>> start(EngineInfo engine, std::filesystem::path work, Ledger& ledger,
                                                              SessionLimits limits = {});

  [[nodiscard]] const Json& hello() const { return hello_; }
  [[nodiscard]] const EngineInfo& engine() const { return engine_; }
  [[nodiscard]] bool offers(const std::string& op, const std::string& variant) const;
  [[nodiscard]] bool has_own_loader() const;
  /// Also when hello does not say.
  [[nodiscard]] bool offers(Sync sync) const;

  /// Loads unless this very plan is loaded already.
  [[nodiscard]] Result<void> load(const LoadPlan& plan);
  [[nodiscard]] const LoadPlan& loaded() const { return loaded_; }
  [[nodiscard]] Result<std::vector<LoadedWeight>> weights();
  /// Runs `plan` on what is loaded. A plan that was run before with the same settings and capture is not run again.
  /// Error ids: those of DriverProcess; engine-trace when the trace is not whole or does not hold what was hashed.
  [[nodiscard]] Result<Made> run(const RunPlan& plan, const std::string& purpose);
  /// Begins to make runs of these plans on a second process of the engine, for `run` to find, where the engine says that two are quicker than
  /// one (hello.parallel_runs) and `model_bytes`, the loaded model's, fits the memory twice; else does nothing.
  void run_ahead(const std::vector<RunPlan>& plans, std::int64_t model_bytes);
  /// Waits for the run at hand there, and ends that process.
  void stop_running_ahead() { ahead_.reset(); }
  /// The same as run, made anew each time.
  [[nodiscard]] Result<Made> run_again(const RunPlan& plan, const std::string& purpose);
  /// The run that ended in an engine failure, if one did.
  [[nodiscard]] const std::optional<BrokenRun>& broken_run() const { return broken_run_; }
  /// One model-free op; `fields` as in docs/protocol.md.
  [[nodiscard]] Result<Json> op(Json fields);
  /// The safetensors file that the driver wrote for `op`. Error ids: engine-trace.
  [[nodiscard]] static Result<Tensor> op_output(const std::filesystem::path& file);
  [[nodiscard]] const std::filesystem::path& work() const { return work_; }
  [[nodiscard]] Ledger& ledger() { return ledger_; }

 private:
  Session(EngineInfo engine, std::filesystem::path work, Ledger& ledger, SessionLimits limits);
  [[nodiscard]] Result<void> greet();
  /// What tells runs apart.
  [[nodiscard]] std::string key_of(const RunPlan& plan) const;
  [[nodiscard]] Entry entry_of(const RunPlan& plan, const std::string& purpose) const;
  [[nodiscard]] Made entered(Entry entry, Trace trace);
  [[nodiscard]] Result<Json> ask(const std::string& action, Json fields, std::chrono::seconds limit);

  EngineInfo engine_;
  std::filesystem::path work_;
  Ledger& ledger_;
  SessionLimits limits_;
  std::unique_ptr<DriverProcess> process_;
  Json hello_;
  LoadPlan loaded_;
  bool is_loaded_ = false;
  std::optional<BrokenRun> broken_run_;
  std::map<std::string, Made> made_;  // by load and run plan
  std::unique_ptr<RunsAhead> ahead_;
};

}  // namespace culprit
