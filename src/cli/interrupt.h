#pragma once
// SIGINT and SIGTERM: children are ended, what is half-made is removed, and the exit code is 130.
#include <filesystem>

namespace culprit::cli {

inline constexpr int kInterruptedExitCode = 130;

/// Handles the signals from here on. The running verb sees its engines end and returns; if it does not in time, the process ends anyway.
void watch_for_interrupt();
[[nodiscard]] bool interrupted();

/// A new folder that is removed with all in it at the end, also when interrupted.
class ScratchFolder {
 public:
  /// In memory where the system has room for it there, else on disk. `path` is empty when none could be made.
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace culprit::cli
