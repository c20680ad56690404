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

/// How a process ended.
struct Ending {
  int exit_code = 0;  // meaningful when signal is 0
  int signal = 0;
  [[nodiscard]] bool ok() const { return exit_code == 0 && signal == 0; }
  /// "exit code 3" or "signal 11 (SIGSEGV)"
  [[nodiscard]] std::string text() const;
};

class ChildProcess {
 public:
  enum class Streams { piped, logged };  // stdin and stdout are ours; or stdin is empty and stdout goes to the log
  struct Command {
    std::vector<std::string> argv;           // argv[0] is looked up in PATH when it has no slash
    std::filesystem::path log;               // its stderr is appended to it
    std::filesystem::path temporary_folder;  // becomes TMPDIR of the child, and of nobody else; empty: TMPDIR as it is
    Streams streams = Streams::piped;
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
  /// Our end of its stdout, non-blocking; -1 when that is logged.
  [[nodiscard]] int output() const { return output_.get(); }
  /// Writes what fits without waiting to its stdin and returns the number of bytes; 0 also when it no longer reads. Never raises SIGPIPE.
  [[nodiscard]] std::size_t write_some(std::string_view bytes);
  /// False once a write found that the child has closed its stdin; then there is nothing to poll for.
  [[nodiscard]] bool reads_input() const { return static_cast<bool>(input_); }
  [[nodiscard]] int input() const { return input_.get(); }

  [[nodiscard]] bool has_exited() const;
  /// Waits up to `limit` for it to exit by itself; true when it has.
  [[nodiscard]] bool wait_for_exit(std::chrono::milliseconds limit) const;
  /// SIGTERM to the group, SIGKILL after `grace`, then reaps. What was left of the group after the child's own exit is killed too.
  void end(std::chrono::milliseconds grace = kGrace);
  /// Only after `end`.
  [[nodiscard]] Ending ending() const;

 private:
  static constexpr std::chrono::milliseconds kGrace{300};

  ChildProcess() = default;

  int pid_ = -1;
  std::optional<int> wait_status_;  // once reaped
  Descriptor input_;
  Descriptor output_;
};

}  // namespace culprit
