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
#include "engine/live_children.h"

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

/// A process group of its own, so that all that the program starts can be ended with it.
class Attributes {
 public:
  Attributes() {
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP);
  }
  ~Attributes() { posix_spawnattr_destroy(&attributes_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  posix_spawnattr_t* get() { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

/// Waits until `until`; true when the process has ended, which is not reaped yet.
bool wait_until(pid_t process, Clock::time_point until) {
  while (true) {
    siginfo_t info{};
    const int failed = ::waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT);
    if (failed == 0 && info.si_pid == process) return true;
    if (failed != 0 && errno != EINTR) return true;
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
  arguments.reserve(argv.size() + 1);
  for (const auto& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);

  if (children_ended()) return fail("interrupted", fmt::format("'{}' is not started after an interrupt", argv[0]));
  FileActions actions;
  posix_spawn_file_actions_addopen(actions.get(), 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(actions.get(), 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  posix_spawn_file_actions_adddup2(actions.get(), 1, 2);
  Attributes attributes;
  pid_t process = 0;
  if (const int error = ::posix_spawnp(&process, argv[0].c_str(), actions.get(), attributes.get(), arguments.data(), environ); error != 0)
    return fail("engine-start", fmt::format("cannot start '{}': {}", argv[0], std::generic_category().message(error)));
  add_live_child(process);

  Finished finished;
  if (!wait_until(process, Clock::now() + limit)) {
    finished.timed_out = true;
    ::kill(-process, SIGTERM);
    if (!wait_until(process, Clock::now() + kGraceAfterTerm)) {
      ::kill(-process, SIGKILL);
      wait_until(process, Clock::time_point::max());
    }
  }
  remove_live_child(process);
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
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
