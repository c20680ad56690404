#include "cli/interrupt.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <thread>

#include "engine/live_children.h"

namespace culprit::cli {
namespace {
namespace fs = std::filesystem;

constexpr std::chrono::seconds kGrace(3);                          // for the running verb to return by itself
constexpr std::uintmax_t kRoomInMemory = std::uintmax_t{2} << 30;  // traces of a find take some hundred MB

std::atomic<bool> interrupt_seen = false;
int wake_up[2] = {-1, -1};  // a pipe from the signal handler to the watcher
std::mutex folders_mutex;
std::set<fs::path> folders;

extern "C" void on_signal(int) {
  const int error = errno;
  const char byte = 0;
  [[maybe_unused]] const auto written = ::write(wake_up[1], &byte, 1);
  errno = error;
}

void remove_folders() {
  const std::lock_guard lock(folders_mutex);
  std::error_code ignored;
  for (const auto& folder : folders) fs::remove_all(folder, ignored);
}

void watch() {
  char byte = 0;
  while (::read(wake_up[0], &byte, 1) < 0 && errno == EINTR) {
  }
  interrupt_seen = true;
  end_live_children();
  std::this_thread::sleep_for(kGrace);  // the main thread ends the process, and this thread with it
  remove_folders();
  ::_exit(kInterruptedExitCode);
}

fs::path place_for_scratch() {
  std::error_code error;
  fs::path memory = "/dev/shm";
  const auto space = fs::space(memory, error);
  if (!error && space.available >= kRoomInMemory && ::access(memory.c_str(), W_OK) == 0) return memory;
  return fs::temp_directory_path(error);
}

}  // namespace

void watch_for_interrupt() {
  if (::pipe(wake_up) != 0) return;
  for (const int end : wake_up) ::fcntl(end, F_SETFD, FD_CLOEXEC);
  std::thread(watch).detach();
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    // A signal that the caller had ignored (nohup) stays so.
    if (::sigaction(signal, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
}

bool interrupted() { return interrupt_seen; }

ScratchFolder::ScratchFolder() {
  auto name = (place_for_scratch() / "culprit-XXXXXX").string();
  const std::lock_guard lock(folders_mutex);
  if (::mkdtemp(name.data()) == nullptr) return;
  path_ = name;
  folders.insert(path_);
}

ScratchFolder::~ScratchFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  const std::lock_guard lock(folders_mutex);
  folders.erase(path_);
}

}  // namespace culprit::cli
