// The caches' exact semantics, on the reference engine's arrays.
#include "engines/kit/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "engines/ref/ref_backend.h"

namespace culprit::ref {
namespace {

using kit::KvCache;

constexpr std::int64_t kHeads = 2, kChannels = 64;

class Caches : public testing::Test {
 protected:
  /// [1, 2, tokens, 64], element i of it is (first + i) / 1000.
  kit::Array tokens(std::int64_t count, double first) {
    std::vector<double> values(static_cast<std::size_t>(kHeads * count * kChannels));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = (first + static_cast<double>(i)) / 1000;
    return *backend_.from_host(Tensor::from_values(DType::f32, {1, kHeads, count, kChannels}, values));
  }
  Tensor host(const kit::Array& array) { return *backend_.to_host(array); }
  Tensor append(KvCache& cache, const kit::Array& x) { return host(*cache.update(backend_, x)); }

  RefBackend backend_{"culprit-ref"};
};

TEST_F(Caches, PaddedGrowsByWholeSteps) {
  KvCache cache({.kind = CacheKind::padded}, DType::f32);
  append(cache, tokens(220, 0));
  EXPECT_EQ(cache.capacity(), 220) << "the first update is stored as it is";
  append(cache, tokens(1, 10000));
  EXPECT_EQ(cache.capacity(), 476) << "220 and one step of 256, of which 255 are pad";
  for (int i = 0; i < 255; ++i) append(cache, tokens(1, 0));
  EXPECT_EQ(cache.length(), 476);
  EXPECT_EQ(cache.capacity(), 476) << "it fits exactly";
  append(cache, tokens(300, 0));
  EXPECT_EQ(cache.length(), 776);
  EXPECT_EQ(cache.capacity(), 476 + 512) << "300 tokens need two steps";
}

TEST_F(Caches, PaddedWithoutPadIsAStepToo) {
  KvCache cache({.kind = CacheKind::padded}, DType::f32);
  append(cache, tokens(1, 0));
  append(cache, tokens(256, 0));
  EXPECT_EQ(cache.capacity(), 257);
  EXPECT_EQ(cache.length(), 257);
}

// The three repro tests of the padded cache: its live view equals the concatenated cache, but a read that ignores strides sees head 0's
// pad.
TEST_F(Caches, PaddedShowsWhatConcatShowsThroughAStridedView) {
  KvCache padded({.kind = CacheKind::padded}, DType::f32), concat(CacheSpec{}, DType::f32);
  const auto prefix = tokens(220, 0);
  append(padded, prefix);
  append(concat, prefix);
  for (int step = 0; step < 8; ++step) {
    const auto token = tokens(1, 10000 + step * 128);
    const auto view = append(padded, token), whole = append(concat, token);
    EXPECT_EQ(view.values(), whole.values()) << step;
    EXPECT_EQ(view.layout().strides, (Shape{kHeads * 476 * kChannels, 476 * kChannels, kChannels, 1}));
    EXPECT_EQ(whole.shape(), (Shape{1, kHeads, 221 + step, kChannels}));
    if (step > 0) continue;
    const auto linear = view.linear_values(view.count());
    for (std::size_t i = linear.size() - 16; i < linear.size(); ++i) EXPECT_EQ(linear[i], 0);
    const auto values = whole.values();
    EXPECT_EQ(static_cast<float>(values.back()), 10.127F);
  }
}

class Overwritten : public Caches, public testing::WithParamInterface<CacheKind> {};

TEST_P(Overwritten, SlotsStayAndTheRestIsAppended) {
  KvCache cache({.kind = GetParam()}, DType::f32);
  append(cache, tokens(3, 0));
  const auto before = append(cache, tokens(1, 500));
  auto changed = before.copy();
  changed.set({0, 1, 2, 5}, 77);
  ASSERT_TRUE(cache.overwrite(backend_, *backend_.from_host(changed)));
  EXPECT_EQ(host(cache.live()).values(), changed.values());
  const auto after = append(cache, tokens(1, 900));
  EXPECT_EQ(after.sliced(2, 0, 4).values(), changed.values());
  EXPECT_EQ(after.sliced(2, 4, 5).values(), host(tokens(1, 900)).values());
}
INSTANTIATE_TEST_SUITE_P(Kinds, Overwritten, testing::Values(CacheKind::concat, CacheKind::padded),
                         [](const auto& kind) { return kind.param == CacheKind::concat ? "concat" : "padded"; });

/// Programs of updates and trims, against what a cache of the kind is to hold.
class Programs : public Caches, public testing::WithParamInterface<const char*> {
 protected:
  /// A value for each token written, the heads told apart.
  kit::Array numbered(const std::vector<double>& stamps) {
    std::vector<double> values = stamps;
    for (const double stamp : stamps) values.push_back(-stamp);
    return *backend_.from_host(Tensor::from_values(DType::f32, {1, kHeads, std::ssize(stamps), 1}, values));
  }
  static std::vector<std::int64_t> sorted(std::vector<std::int64_t> numbers) {
    std::ranges::sort(numbers);
    return numbers;
  }
  CacheSpec spec() const { return *CacheSpec::parse(GetParam()); }
};

TEST_P(Programs, EachSlotHoldsTheNewestOfItsToken) {
  std::mt19937 random(7);
  int taken_back = 0, refused = 0;
  for (int program = 0; program < 200; ++program) {
    KvCache cache(spec(), DType::f32, program % 2 == 1);
    CacheContent content(spec());
    std::map<std::int64_t, double> newest;
    double stamp = 0;
    for (int step = 0; step < 12; ++step) {
      const auto next_before = content.next();
      if (random() % 4 == 0 && next_before > 0) {
        const auto count = static_cast<std::int64_t>(random() % 3 + 1);
        if (count > next_before) continue;
        const auto trimmed = cache.trim(backend_, count);
        ASSERT_EQ(trimmed.has_value(), content.take_back(count).has_value()) << "program " << program << ", step " << step;
        if (!trimmed) {
          EXPECT_EQ(trimmed.error().id, "not-supported");
          ++refused;
          continue;
        }
        ++taken_back;
        EXPECT_EQ(content.next(), next_before - count);
      } else {
        std::vector<double> stamps;
        for (auto count = random() % 3 == 0 ? random() % 6 + 1 : 1; count > 0; --count) {
          newest[next_before + std::ssize(stamps)] = ++stamp;
          stamps.push_back(stamp);
        }
        const auto read = append(cache, numbered(stamps));
        content.feed(std::ssize(stamps));
        ASSERT_EQ(sorted(cache.slots()), content.read()) << "program " << program << ", step " << step;
        ASSERT_EQ(read.dim(2), std::ssize(cache.slots()));
        for (std::int64_t slot = 0; slot < read.dim(2); ++slot)
          for (std::int64_t head = 0; head < kHeads; ++head)
            EXPECT_EQ(read.at({0, head, slot, 0}), (head == 0 ? 1 : -1) * newest.at(cache.slots()[static_cast<std::size_t>(slot)]));
        EXPECT_EQ(content.next(), next_before + std::ssize(stamps));
      }
      ASSERT_EQ(sorted(cache.stored_slots()), content.held());
      EXPECT_EQ(cache.layout().next(), content.next());
      const auto stored = host(cache.live());
      ASSERT_EQ(stored.dim(2), std::ssize(content.held()));
      for (const double value : stored.values()) EXPECT_FALSE(std::isnan(value));
    }
  }
  EXPECT_GT(taken_back, 0);
  const bool never_full = spec().kind == CacheKind::rotating && spec().size > 12 * 6;
  EXPECT_EQ(refused > 0, !spec().keeps_all() && !never_full);
}

// The same history gives the same bytes, however it was chunked: for caches that hold all, and for others as long as they do.
TEST_P(Programs, ChunksDoNotShowWhereNothingIsDropped) {
  std::mt19937 random(11);
  for (int program = 0; program < 50; ++program) {
    const std::int64_t length = spec().keeps_all() ? 12 : 4;
    KvCache whole(spec(), DType::f32), chunked(spec(), DType::f32);
    std::vector<double> stamps;
    for (std::int64_t i = 0; i < length; ++i) stamps.push_back(static_cast<double>(i) + 1);
    append(whole, numbered(stamps));
    for (std::int64_t fed = 0; fed < length;) {
      const auto count = std::min<std::int64_t>(length - fed, static_cast<std::int64_t>(random() % 4) + 1);
      append(chunked, numbered({stamps.begin() + fed, stamps.begin() + fed + count}));
      fed += count;
    }
    EXPECT_EQ(host(whole.live()).values(), host(chunked.live()).values());
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Programs,
                         testing::Values("concat", "padded", "rotating:size=5,keep=2", "rotating:size=4", "rotating:size=300,keep=4",
                                         "sink_window:sink=2,window=3", "sink_window:sink=0,window=4"),
                         [](const auto& text) {
                           std::string name = text.param;
                           std::ranges::replace_if(
                               name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
                           return name;
                         });

// mlx_lm's fixture: capacity 5, of which 2 are kept.
TEST_F(Caches, ARingIsInOrderOfTimeWhenSeveralTokensCome) {
  KvCache cache({.kind = CacheKind::rotating, .size = 5, .keep = 2}, DType::f32);
  for (int i = 0; i < 10; ++i) append(cache, tokens(1, i));
  EXPECT_EQ(cache.slots(), (std::vector<std::int64_t>{0, 1, 8, 9, 7}));
  EXPECT_EQ(cache.capacity(), 5);
  append(cache, tokens(1, 10));
  EXPECT_EQ(cache.slots(), (std::vector<std::int64_t>{0, 1, 8, 9, 10}));
  append(cache, tokens(3, 11));
  EXPECT_EQ(cache.slots(), (std::vector<std::int64_t>{0, 1, 9, 10, 11, 12, 13}));
  append(cache, tokens(1, 14));
  EXPECT_EQ(cache.slots(), (std::vector<std::int64_t>{0, 1, 14, 12, 13}));
}

TEST_F(Caches, SinksAndAWindowAreReadWholeAndStoredTrimmed) {
  KvCache cache({.kind = CacheKind::sink_window, .sink = 2, .window = 3}, DType::f32);
  append(cache, tokens(6, 0));
  EXPECT_EQ(cache.slots(), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(cache.stored_slots(), (std::vector<std::int64_t>{0, 1, 3, 4, 5}));
  append(cache, tokens(2, 6));
  EXPECT_EQ(cache.slots(), (std::vector<std::int64_t>{0, 1, 3, 4, 5, 6, 7}));
  ASSERT_TRUE(cache.trim(backend_, 1));
  EXPECT_EQ(cache.stored_slots(), (std::vector<std::int64_t>{0, 1, 5, 6})) << "what was dropped does not come back";
  EXPECT_EQ(cache.trim(backend_, 3).error().id, "not-supported") << "it would take a sink";
}

TEST_F(Caches, PoisonFillsWhatNobodyMayRead) {
  KvCache cache({.kind = CacheKind::padded}, DType::f32, true);
  append(cache, tokens(3, 0));
  const auto view = append(cache, tokens(2, 500));
  for (const double value : view.values()) EXPECT_FALSE(std::isnan(value));
  ASSERT_TRUE(cache.trim(backend_, 1));
  const auto stored = host(cache.live());
  // Read on beyond the view: what is left of head 0's buffer.
  const auto beyond = stored.linear_values(5 * kChannels);
  EXPECT_FALSE(std::isnan(beyond[4 * kChannels - 1]));
  EXPECT_TRUE(std::isnan(beyond[4 * kChannels]));
}

}  // namespace
}  // namespace culprit::ref
