#include "base/pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace culprit {
namespace {
constexpr unsigned kThreadsMax = 256;
constexpr std::size_t kClaimsPerThread = 16;  // evens out blocks of unequal cost

thread_local bool inside_loop = false;  // of this thread: a nested loop then runs inline

using Body = std::function<void(std::size_t, std::size_t)>;

/// One loop. It lives on its caller's stack, who leaves only after every helper has left.
struct Loop {
  const Body& body;
  std::size_t count;
  std::size_t grain;
  std::size_t block_count;
  std::size_t claim;     // blocks that a thread takes at a time
  unsigned seats;        // helpers that may still join; guarded by Pool::mutex_
  unsigned helpers = 0;  // helpers inside; guarded by Pool::mutex_
  std::atomic<std::size_t> next{0};
  std::condition_variable left{};

  void work() {
    inside_loop = true;
    while (true) {
      // Relaxed: blocks are disjoint, and Pool::mutex_ orders the results before the caller goes on.
      const auto first = next.fetch_add(claim, std::memory_order_relaxed);
      if (first >= block_count) break;
      const auto last = std::min(first + claim, block_count);
      for (auto block = first; block < last; ++block) body(block * grain, std::min((block + 1) * grain, count));
    }
    inside_loop = false;
  }
};

class Pool {
 public:
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  void run(Loop& loop) {
    {
      const std::lock_guard lock(mutex_);
      grow(loop.seats);
      loops_.push_back(&loop);
    }
    wake_.notify_all();
    loop.work();
    std::unique_lock lock(mutex_);
    std::erase(loops_, &loop);  // from here on nobody joins
    loop.left.wait(lock, [&] { return loop.helpers == 0; });
  }

 private:
  void grow(unsigned wanted) {
    try {
      while (threads_.size() < wanted) threads_.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {  // the system gives no more threads: the ones there are, and the caller, do the work
    }
  }

  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      const auto open = std::find_if(loops_.begin(), loops_.end(), [](const Loop* loop) { return loop->seats > 0; });
      if (open == loops_.end()) {
        if (stop_) return;
        wake_.wait(lock);
        continue;
      }
      Loop& loop = **open;
      --loop.seats;
      ++loop.helpers;
      lock.unlock();
      loop.work();
      lock.lock();
      if (--loop.helpers == 0) loop.left.notify_one();  // under the lock: the loop may be gone as soon as it is released
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Loop*> loops_;
  std::vector<std::thread> threads_;
  bool stop_ = false;
};

Pool& pool() {
  static Pool instance;
  return instance;
}
}  // namespace

void parallel_for(std::size_t count, std::size_t grain, const Body& body, unsigned threads) {
  if (count == 0) return;
  grain = std::clamp<std::size_t>(grain, 1, count);
  const std::size_t block_count = (count - 1) / grain + 1;
  static const unsigned cores = std::max(1u, std::thread::hardware_concurrency());  // the C library reads a file for it each time
  if (threads == 0) threads = cores;
  threads = static_cast<unsigned>(std::min<std::size_t>(std::min(threads, kThreadsMax), block_count));
  if (threads == 1 || inside_loop) {
    for (std::size_t begin = 0; begin < count; begin += std::min(grain, count - begin)) body(begin, begin + std::min(grain, count - begin));
    return;
  }
  const auto claim = std::max<std::size_t>(1, block_count / (threads * kClaimsPerThread));
  Loop loop{.body = body, .count = count, .grain = grain, .block_count = block_count, .claim = claim, .seats = threads - 1};
  pool().run(loop);
}

}  // namespace culprit
