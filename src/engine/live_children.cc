#include "engine/live_children.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

namespace culprit {
namespace {

constexpr std::chrono::milliseconds kGrace(300);  // between SIGTERM and SIGKILL

std::atomic<bool> ended = false;

struct Live {
  std::mutex mutex;
  std::set<int> pids;
};
/// Never destroyed: other threads may still be at it while the process ends.
Live& live() {
  static auto* const one = new Live;
  return *one;
}

void signal_all(int signal) {
  // Held: a pid is removed before it is reaped, so none of them can have passed to a stranger.
  const std::lock_guard lock(live().mutex);
  for (const int pid : live().pids) ::kill(-pid, signal);
}

}  // namespace

void add_live_child(int pid) {
  {
    const std::lock_guard lock(live().mutex);
    live().pids.insert(pid);
  }
  if (ended) ::kill(-pid, SIGKILL);  // started while the others were ended
}

void remove_live_child(int pid) {
  const std::lock_guard lock(live().mutex);
  live().pids.erase(pid);
}

void end_live_children() {
  ended = true;
  signal_all(SIGTERM);
  std::this_thread::sleep_for(kGrace);
  signal_all(SIGKILL);
}

bool children_ended() { return ended; }

}  // namespace culprit
