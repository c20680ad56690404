#include "engine/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/live_children.h"

extern char** environ;

namespace culprit {
namespace {

constexpr std::chrono::milliseconds kPollPeriod{2};  // there is no portable way to wait for a child with a deadline

tl::unexpected<Error> cannot_start(std::string_view what, int error, const std::string& where) {
  return fail("engine-start", fmt::format("{}: {}", what, std::generic_category().message(error)), where, error);
}

/// The same descriptor, not inherited, and above those of stdio: a dup2 onto itself would leave it closed in the child.
Descriptor out_of_the_way(int descriptor) {
  if (descriptor < 0) return Descriptor();
  Descriptor low(descriptor);
  if (descriptor > STDERR_FILENO) {
    ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    return low;
  }
  return Descriptor(::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

struct Ends {
  Descriptor ours, childs;
};

void set_non_blocking(const Descriptor& descriptor) { ::fcntl(descriptor.get(), F_SETFL, ::fcntl(descriptor.get(), F_GETFL) | O_NONBLOCK); }

/// A socket pair and no pipe, because only a socket can be written without the risk of SIGPIPE and without touching the signal's
/// disposition, which belongs to the whole process.
bool open_input(Ends& ends) {
  int pair[2];
#ifdef SOCK_CLOEXEC
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return false;
#else
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return false;
#endif
  ends.ours = out_of_the_way(pair[0]);
  ends.childs = out_of_the_way(pair[1]);
#ifdef SO_NOSIGPIPE
  const int on = 1;
  ::setsockopt(ends.ours.get(), SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
  set_non_blocking(ends.ours);
  return ends.ours && ends.childs;
}

bool open_output(Ends& ends) {
  int pair[2];
#ifdef __linux__
  if (::pipe2(pair, O_CLOEXEC) != 0) return false;
#else
  if (::pipe(pair) != 0) return false;
#endif
  ends.ours = out_of_the_way(pair[0]);
  ends.childs = out_of_the_way(pair[1]);
  set_non_blocking(ends.ours);
  return ends.ours && ends.childs;
}

Descriptor open_log(const std::filesystem::path& log) {
  return out_of_the_way(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
}

bool open_streams(const ChildProcess::Command& command, Ends& input, Ends& output) {
  if (command.streams == ChildProcess::Streams::piped) return open_input(input) && open_output(output);
  input.childs = out_of_the_way(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  output.childs = open_log(command.log);
  return input.childs && output.childs;
}

/// Our own environment, passed on, with another TMPDIR unless that is empty.
std::vector<std::string> environment_with(const std::filesystem::path& temporary_folder) {
  std::vector<std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    if (temporary_folder.empty() || !std::string_view(*entry).starts_with("TMPDIR=")) environment.emplace_back(*entry);
  if (!temporary_folder.empty()) environment.push_back("TMPDIR=" + temporary_folder.string());
  return environment;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// posix_spawn and not fork: safe while other threads run, and cheap however much memory we hold. Returns an errno, 0 when it worked.
int spawn(std::vector<std::string> argv, std::vector<std::string> environment, const Ends& input, const Ends& output, const Descriptor& log,
          int& pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, input.childs.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output.childs.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, log.get(), STDERR_FILENO);
  sigset_t none, to_default;
  sigemptyset(&none);
  sigemptyset(&to_default);
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGCHLD, SIGXFSZ}) sigaddset(&to_default, signal);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &to_default);
  posix_spawnattr_setpgroup(&attributes, 0);
  int flags = POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
#ifdef POSIX_SPAWN_CLOEXEC_DEFAULT
  // Where descriptors cannot be born close-on-exec, another thread's child could inherit ours and keep them open.
  flags |= POSIX_SPAWN_CLOEXEC_DEFAULT;
#endif
  posix_spawnattr_setflags(&attributes, static_cast<short>(flags));
  pid_t spawned = -1;
  const int error =
      ::posix_spawnp(&spawned, argv[0].c_str(), &actions, &attributes, pointers_to(argv).data(), pointers_to(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  pid = spawned;
  return error;
}

struct SignalName {
  int number;
  std::string_view name;
};
constexpr SignalName kSignalNames[] = {{SIGABRT, "SIGABRT"}, {SIGALRM, "SIGALRM"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
                                       {SIGHUP, "SIGHUP"},   {SIGILL, "SIGILL"},   {SIGINT, "SIGINT"},   {SIGKILL, "SIGKILL"},
                                       {SIGPIPE, "SIGPIPE"}, {SIGQUIT, "SIGQUIT"}, {SIGSEGV, "SIGSEGV"}, {SIGSYS, "SIGSYS"},
                                       {SIGTERM, "SIGTERM"}, {SIGTRAP, "SIGTRAP"}, {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}};

std::string_view name_of_signal(int number) {
  for (const auto& entry : kSignalNames)
    if (entry.number == number) return entry.name;
  return "unnamed";
}

}  // namespace

std::string Ending::text() const {
  return signal != 0 ? fmt::format("signal {} ({})", signal, name_of_signal(signal)) : fmt::format("exit code {}", exit_code);
}

Result<ChildProcess> ChildProcess::start(const Command& command) {
  if (command.argv.empty() || command.argv[0].empty()) return fail("engine-start", "the command is empty");
  const auto& program = command.argv[0];
  if (children_ended()) return fail("interrupted", fmt::format("'{}' is not started after an interrupt", program));
  const Descriptor log = open_log(command.log);
  if (!log) return cannot_start("cannot open the log", errno, command.log.string());
  Ends input, output;
  if (!open_streams(command, input, output)) return cannot_start("cannot open its stdin and stdout", errno, program);
  ChildProcess child;
  if (const int error = spawn(command.argv, environment_with(command.temporary_folder), input, output, log, child.pid_); error != 0) {
    child.pid_ = -1;
    return cannot_start(fmt::format("cannot start '{}'", program), error, program);
  }
  add_live_child(child.pid_);
  child.input_ = std::move(input.ours);
  child.output_ = std::move(output.ours);
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      wait_status_(other.wait_status_),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)) {}

ChildProcess::~ChildProcess() { end(); }

std::size_t ChildProcess::write_some(std::string_view bytes) {
  if (!input_) return 0;
#ifdef MSG_NOSIGNAL
  constexpr int kFlags = MSG_NOSIGNAL;
#else
  constexpr int kFlags = 0;  // SO_NOSIGPIPE is set
#endif
  const auto written = ::send(input_.get(), bytes.data(), bytes.size(), kFlags);
  if (written >= 0) return static_cast<std::size_t>(written);
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ENOBUFS) static_cast<void>(input_.close());
  return 0;
}

bool ChildProcess::has_exited() const {
  if (pid_ < 0 || wait_status_) return true;
  siginfo_t info{};
  // Not reaped, so that neither the pid nor the group id can pass to strangers before `end` has signalled the group.
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0) return info.si_pid == pid_;
  return errno == ECHILD;  // somebody reaps all children of this process, or SIGCHLD is ignored
}

bool ChildProcess::wait_for_exit(std::chrono::milliseconds limit) const {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!has_exited()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPollPeriod);
  }
  return true;
}

void ChildProcess::end(std::chrono::milliseconds grace) {
  if (pid_ < 0 || wait_status_) return;
  static_cast<void>(input_.close());
  if (!has_exited()) {
    ::kill(-pid_, SIGTERM);
    static_cast<void>(wait_for_exit(grace));
  }
  ::kill(-pid_, SIGKILL);
  remove_live_child(pid_);
  int status = 0;
  pid_t reaped = -1;
  do reaped = ::waitpid(pid_, &status, 0);
  while (reaped < 0 && errno == EINTR);
  wait_status_ = reaped == pid_ ? status : 0;
  static_cast<void>(output_.close());
}

Ending ChildProcess::ending() const {
  const int status = wait_status_.value_or(0);
  if (WIFSIGNALED(status)) return {.signal = WTERMSIG(status)};
  return {.exit_code = WEXITSTATUS(status)};
}

}  // namespace culprit
