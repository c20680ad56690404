#include "base/pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace culprit {
namespace {

TEST(ParallelFor, VisitsEveryIndexOnceInBlocksOfTheGrain) {
  for (const unsigned threads : {0u, 1u, 2u, 8u})
    for (const std::size_t count : {0, 1, 7, 64, 1'000})
      for (const std::size_t grain : {0, 1, 7, 64, 5'000}) {
        std::vector<std::atomic<int>> visits(count);
        std::atomic<bool> blocks_fit{true};
        const std::size_t length = std::max<std::size_t>(grain, 1);
        parallel_for(
            count, grain,
            [&](std::size_t begin, std::size_t end) {
              if (begin % length != 0 || end != std::min(begin + length, count)) blocks_fit = false;
              for (auto i = begin; i < end; ++i) ++visits[i];
            },
            threads);
        EXPECT_TRUE(blocks_fit) << count << " by " << grain << " on " << threads;
        EXPECT_TRUE(std::all_of(visits.begin(), visits.end(), [](const auto& n) { return n == 1; }))
            << count << " by " << grain << " on " << threads;
      }
}

TEST(ParallelFor, GivesTheSameSumsWhateverTheThreads) {
  constexpr std::size_t kCount = 100'003;
  constexpr std::size_t kGrain = 97;
  const auto partial_sums = [](unsigned threads) {
    std::vector<float> sums((kCount + kGrain - 1) / kGrain);
    parallel_for(
        kCount, kGrain,
        [&](std::size_t begin, std::size_t end) {
          for (auto i = begin; i < end; ++i) sums[begin / kGrain] += 1.0f / static_cast<float>(i + 1);
        },
        threads);
    return sums;
  };
  const auto expected = partial_sums(1);
  for (const unsigned threads : {2u, 3u, 8u}) EXPECT_EQ(partial_sums(threads), expected);
}

TEST(ParallelFor, RunsOnSeveralThreads) {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  std::atomic<int> waiting{0};
  // Each of the two blocks waits for the other: one thread alone would never come through both.
  parallel_for(
      2, 1,
      [&](std::size_t, std::size_t) {
        ++waiting;
        while (waiting < 2) std::this_thread::yield();
        const std::lock_guard lock(mutex);
        seen.insert(std::this_thread::get_id());
      },
      2);
  EXPECT_EQ(seen.size(), 2u);
}

TEST(ParallelFor, NestedCallsStayOnTheirThread) {
  std::atomic<int> strayed{0};
  std::atomic<std::size_t> visits{0};
  parallel_for(
      16, 1,
      [&](std::size_t, std::size_t) {
        const auto outer = std::this_thread::get_id();
        parallel_for(100, 1, [&](std::size_t begin, std::size_t end) {
          if (std::this_thread::get_id() != outer) ++strayed;
          visits += end - begin;
        });
      },
      4);
  EXPECT_EQ(strayed, 0);
  EXPECT_EQ(visits, 1'600u);
}

TEST(ParallelFor, ServesSeveralCallersAtOnce) {
  std::vector<std::size_t> totals(4);
  std::vector<std::thread> callers;
  for (auto& total : totals)
    callers.emplace_back([&total] {
      for (int round = 0; round < 200; ++round) {
        std::atomic<std::size_t> sum{0};
        parallel_for(
            50, 3, [&](std::size_t begin, std::size_t end) { sum += end - begin; }, 3);
        total += sum;
      }
    });
  for (auto& caller : callers) caller.join();
  for (const auto total : totals) EXPECT_EQ(total, 10'000u);
}

}  // namespace
}  // namespace culprit
