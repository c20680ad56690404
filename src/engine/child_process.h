#pragma once
// A child process in a process group of its own, so that it can be ended with all that it started.
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/result.h"

namespace culprit {

class ChildProcess {
 public:
  struct Command {
    std::vector<std::string> argv;           // argv[0] is looked up in PATH when it has no slash
    std::filesystem::path stderr_file;       // appended to
    std::filesystem::path temporary_folder;  // becomes TMPDIR of the child, and of nobody else
  };
  /// Error ids: engine-start, interrupted (engine/live_children.h).
  [[nodiscard]] static Result<ChildProcess> start(const Command& command);
  /// Ends the group.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ChildProcess& operator=(ChildProcess&&) = delete;

  /// The pid stays the child's own until `end`, also when the child has exited: it is not reaped before.
  [[nodiscard]] int pid() const { return pid_; }
  /// Our end of its stdout, non-blocking.
  [[nodiscard]] int output() const { return output_.get(); }
  /// Writes what fits without waiting to its stdin and returns the number of bytes; 0 also when it no longer reads. Never raises SIGPIPE.
  [[nodiscard]] std::size_t write_some(std::string_view bytes);
  /// False once a write found that the child has closed its stdin; then there is nothing to poll for.
  [[nodiscard]] bool reads_input() const { return static_cast<bool>(input_); }
  [[nodiscard]] int input() const { return input_.get(); }

  [[nodiscard]] bool has_exited() const;
  /// Waits up to `limit` for it to exit by itself; true when it has.
  [[nodiscard]] bool wait_for_exit(std::chrono::milliseconds limit) const;
  /// SIGTERM to the group, SIGKILL after a short grace, then reaps. What was left of the group after the child's own exit is killed too.
  void end();
  /// "exit code 3" or "signal 11 (SIGSEGV)"; only after `end`.
  [[nodiscard]] std::string ending() const;
  /// True when it ended by itself with exit code 0; only after `end`.
  [[nodiscard]] bool ended_well() const;

 private:
  ChildProcess() = default;

  int pid_ = -1;
  std::optional<int> wait_status_;  // once reaped
  Descriptor input_;
  Descriptor output_;
};

}  // namespace culprit
