#pragma once
// Runs a program to its end without a shell, its output appended to a log file.
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/child_process.h"

namespace culprit {

struct Finished {
  Ending ending;
  bool timed_out = false;
  [[nodiscard]] bool ok() const { return ending.ok() && !timed_out; }
  /// Ending::text or "no end within 600 s"
  [[nodiscard]] std::string reason(std::chrono::seconds limit) const;
};

/// argv[0] is looked up on PATH. stdin is empty; stdout and stderr go to the end of `log`. At the limit its process group gets SIGTERM,
/// then SIGKILL; end_live_children (engine/live_children.h) ends it too. Error ids: engine-start, interrupted.
[[nodiscard]] Result<Finished> run_program(const std::vector<std::string>& argv, const std::filesystem::path& log,
                                           std::chrono::seconds limit);

/// The last lines of a log that are not blank, joined by " | "; empty when it cannot be read.
[[nodiscard]] std::string last_lines(const std::filesystem::path& log, std::size_t count);

}  // namespace culprit
