// The caches' exact semantics, on the reference engine's arrays.
#include "engines/kit/kv_cache.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace culprit::ref
