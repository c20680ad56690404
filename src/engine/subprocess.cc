#include "engine/subprocess.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cassert>
#include <cerrno>
#include <deque>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/file.h"

extern char** environ;  // NOLINT: POSIX declares it in no header

namespace culprit {
namespace {
using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPollInterval(20);
constexpr std::chrono::seconds kGraceAfterTerm(2);

class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

/// Waits until `until`; true when the process has ended.
bool wait_until(pid_t process, Clock::time_point until, int& status) {
  while (true) {
    const auto ended = ::waitpid(process, &status, WNOHANG);
    if (ended == process) return true;
    if (ended < 0 && errno != EINTR) return true;
    if (Clock::now() >= until) return false;
    std::this_thread::sleep_for(kPollInterval);
  }
}
}  // namespace

std::string Finished::reason(std::chrono::seconds limit) const {
  if (timed_out) return fmt::format("no end within {} s", limit.count());
  return signal != 0 ? fmt::format("signal {}", signal) : fmt::format("exit code {}", exit_code);
}

Result<Finished> run_program(const std::vector<std::string>& argv, const std::filesystem::path& log, std::chrono::seconds limit) {
  assert(!argv.empty());
  std::vector<char*> arguments;
  for (const auto& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);

  FileActions actions;
  posix_spawn_file_actions_addopen(actions.get(), 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(actions.get(), 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  posix_spawn_file_actions_adddup2(actions.get(), 1, 2);
  pid_t process = 0;
  if (const int error = ::posix_spawnp(&process, argv[0].c_str(), actions.get(), nullptr, arguments.data(), environ); error != 0)
    return fail("engine-start", fmt::format("cannot start '{}': {}", argv[0], std::generic_category().message(error)));

  Finished finished;
  int status = 0;
  if (!wait_until(process, Clock::now() + limit, status)) {
    finished.timed_out = true;
    ::kill(process, SIGTERM);
    if (!wait_until(process, Clock::now() + kGraceAfterTerm, status)) {
      ::kill(process, SIGKILL);
      wait_until(process, Clock::time_point::max(), status);
    }
  }
  if (WIFSIGNALED(status)) finished.signal = WTERMSIG(status);
  if (WIFEXITED(status)) finished.exit_code = WEXITSTATUS(status);
  return finished;
}

std::string last_lines(const std::filesystem::path& log, std::size_t count) {
  const auto text = read_file(log);
  if (!text) return {};
  std::deque<std::string> lines;
  std::istringstream stream(*text);
  for (std::string line; std::getline(stream, line);) {
    const auto end = line.find_last_not_of(" \t\r");
    if (end == std::string::npos) continue;
    lines.push_back(line.substr(0, end + 1));
    if (lines.size() > count) lines.pop_front();
  }
  return fmt::format("{}", fmt::join(lines, " | "));
}

}  // namespace culprit
