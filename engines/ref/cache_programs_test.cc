// Random programs of updates, trims and restores on every kind of cache, against a list of tokens for each row.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "decode/affine_groups.h"
#include "engines/kit/kv_cache.h"
#include "engines/ref/ref_backend.h"

namespace culprit::ref {
namespace {

using kit::KvCache;

constexpr std::int64_t kRows = 2, kHeads = 2, kChannels = 64;
constexpr int kPrograms = 25, kMutations = 14;

/// What a token wrote, or what is read of it: [head * channel].
using Vector = std::vector<double>;

/// What each row was fed and still counts, and how a cache keeps it.
class Model {
 public:
  explicit Model(const CacheSpec& spec) : spec_(spec), content_(spec) {}

  void feed(const std::vector<std::vector<Vector>>& tokens) {
    for (std::size_t row = 0; row < rows_.size(); ++row) rows_[row].insert(rows_[row].end(), tokens[row].begin(), tokens[row].end());
    content_.feed(std::ssize(tokens[0]));
  }
  bool take_back(std::int64_t tokens) {
    if (!content_.take_back(tokens)) return false;
    for (auto& row : rows_) row.resize(row.size() - static_cast<std::size_t>(tokens));
    return true;
  }
  [[nodiscard]] const CacheContent& content() const { return content_; }
  /// Of token `number`: a cache that quantises reads each token as if it were alone.
  [[nodiscard]] Vector read(std::int64_t row, std::int64_t number) const {
    const auto& written = rows_[static_cast<std::size_t>(row)][static_cast<std::size_t>(number)];
    if (!spec_.quantizes()) return written;
    const auto x = Tensor::from_values(DType::f32, {1, kHeads, 1, kChannels}, written);
    return dequantise_groups(quantise_groups(x, spec_), spec_).values();
  }

 private:
  CacheSpec spec_;
  CacheContent content_;
  std::vector<std::vector<Vector>> rows_{static_cast<std::size_t>(kRows)};
};

/// Says in what `actual`, whose slots hold the tokens `slots`, differs from the model's tokens `numbers`; empty when in nothing.
std::string differs(const Tensor& actual, std::vector<std::int64_t> slots, const Model& model, const std::vector<std::int64_t>& numbers) {
  if (actual.shape() != Shape{kRows, kHeads, std::ssize(numbers), kChannels}) return "shape " + to_string(actual.shape());
  for (std::int64_t slot = 0; slot < std::ssize(slots); ++slot)
    for (std::int64_t row = 0; row < kRows; ++row)
      if (const auto number = slots[static_cast<std::size_t>(slot)];
          actual.sliced(0, row, row + 1).sliced(2, slot, slot + 1).values() != model.read(row, number))
        return fmt::format("row {}, slot {} does not hold token {}", row, slot, number);
  std::ranges::sort(slots);
  return slots == numbers ? "" : "it holds other tokens";
}

struct Counts {
  int updates = 0, trims = 0, refused = 0, restores = 0;
};

/// One program: the first invariant that a mutation breaks, or nothing.
class Program {
 public:
  Program(kit::Backend& backend, const CacheSpec& spec, unsigned seed)
      : backend_(backend), spec_(spec), random_(seed), model_(spec), cache_(spec, DType::f32, seed % 2 == 1) {}

  std::string run(Counts& counts) {
    for (int mutation = 0; mutation < kMutations; ++mutation) {
      const auto what = model_.content().next() == 0 ? 0 : random_() % 6;
      auto broken = what == 4 ? trim(counts) : what == 5 ? restore(counts) : update(counts);
      if (broken.empty()) broken = stored_is_right();
      if (!broken.empty()) return fmt::format("mutation {}: {}", mutation, broken);
    }
    return {};
  }

 private:
  std::string update(Counts& counts) {
    ++counts.updates;
    const auto tokens = random_() % 3 == 0 ? random_() % 5 + 1 : 1;
    std::vector<std::vector<Vector>> fed(kRows, std::vector<Vector>(tokens, Vector(kHeads * kChannels)));
    auto x = Tensor::zeros(DType::f32, {kRows, kHeads, static_cast<std::int64_t>(tokens), kChannels});
    for_each_index(x.shape(), [&](std::span<const std::int64_t> i) {
      x.set(i, std::normal_distribution(0.0, 1 + 5.0 * static_cast<double>(i[3] / 32))(random_));  // groups have ranges of their own
      fed[static_cast<std::size_t>(i[0])][static_cast<std::size_t>(i[2])][static_cast<std::size_t>(i[1] * kChannels + i[3])] = x.at(i);
    });
    model_.feed(fed);
    const auto array = backend_.from_host(x);
    const auto read = cache_.update(backend_, *array);
    if (!read) return to_string(read.error());
    return differs(*backend_.to_host(*read), cache_.slots(), model_, model_.content().read());
  }

  std::string trim(Counts& counts) {
    const auto tokens = std::min<std::int64_t>(static_cast<std::int64_t>(random_() % 4 + 1), model_.content().next());
    const bool can = model_.take_back(tokens);
    ++(can ? counts.trims : counts.refused);
    const auto done = cache_.trim(backend_, tokens);
    if (done.has_value() != can) return fmt::format("{} tokens {} be taken back", tokens, can ? "can" : "cannot");
    return done || done.error().id == "not-supported" ? "" : to_string(done.error());
  }

  std::string restore(Counts& counts) {
    ++counts.restores;
    const auto before = cache_.live();
    if (const auto done = cache_.restore(backend_); !done) return to_string(done.error());
    if (cache_.live() == before) return "it was not dropped";
    return cache_.capacity() == cache_.length() ? "" : "a restored cache has no spare slots";
  }

  // INV-1 and INV-2, and that each slot holds the newest of its token.
  std::string stored_is_right() {
    if (cache_.layout().next() != model_.content().next()) return fmt::format("token {} is next", cache_.layout().next());
    if (cache_.length() != std::ssize(model_.content().held())) return fmt::format("its length is {}", cache_.length());
    return differs(*backend_.to_host(cache_.live()), cache_.stored_slots(), model_, model_.content().held());
  }

  kit::Backend& backend_;
  CacheSpec spec_;
  std::mt19937 random_;
  Model model_;
  KvCache cache_;
};

/// Programs of fixed seeds: what the first one that breaks says, or nothing.
std::string broken_by(kit::Backend& backend, const char* cache, Counts& counts) {
  for (unsigned seed = 1; seed <= kPrograms; ++seed)
    if (const auto broken = Program(backend, *CacheSpec::parse(cache), seed).run(counts); !broken.empty())
      return fmt::format("{}, seed {}: {}", cache, seed, broken);
  return {};
}

constexpr const char* kCaches[] = {"concat",
                                   "padded",
                                   "rotating:size=5,keep=2",
                                   "rotating:size=4",
                                   "rotating:size=300,keep=4",
                                   "sink_window:sink=2,window=3",
                                   "sink_window:sink=0,window=4",
                                   "quantized:bits=8,group=32",
                                   "quantized:bits=4,group=64",
                                   "quantized:bits=2,group=32"};

TEST(CachePrograms, KeepWhatEachRowWasFed) {
  for (const auto* cache : kCaches) {
    RefBackend backend("culprit-ref");
    Counts counts;
    EXPECT_EQ(broken_by(backend, cache, counts), "");
    EXPECT_GT(counts.updates, 100) << cache;
    EXPECT_GT(counts.trims, 0) << cache;
    EXPECT_GT(counts.restores, 20) << cache;
  }
}

/// The same bytes, however the history was chunked, taken back and restored in between.
TEST(CachePrograms, TheHistoryAloneDecidesWhatAQuantisedCacheReads) {
  RefBackend backend("culprit-ref");
  const auto spec = *CacheSpec::parse("quantized:bits=4,group=32");
  const auto x = [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> values(static_cast<std::size_t>(kHeads * 12 * kChannels));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i * i % 1009));
    return *backend.from_host(Tensor::from_values(DType::bf16, {1, kHeads, 12, kChannels}, values).sliced(2, begin, end));
  };
  KvCache whole(spec, DType::bf16), parts(spec, DType::bf16);
  ASSERT_TRUE(whole.update(backend, x(0, 12)));
  for (const auto& [begin, end] : {std::pair{0, 3}, {3, 4}, {4, 9}}) ASSERT_TRUE(parts.update(backend, x(begin, end)));
  ASSERT_TRUE(parts.trim(backend, 3));
  ASSERT_TRUE(parts.restore(backend));
  for (const auto& [begin, end] : {std::pair{6, 7}, {7, 12}}) ASSERT_TRUE(parts.update(backend, x(begin, end)));
  EXPECT_EQ(backend.to_host(whole.live())->values(), backend.to_host(parts.live())->values());
}

/// An engine of which one op is broken.
class BrokenBackend : public RefBackend {
 public:
  explicit BrokenBackend(std::string breaks) : RefBackend("culprit-ref"), breaks_(std::move(breaks)) {}

  Result<kit::Array> slice(const kit::Array& x, int axis, std::int64_t begin, std::int64_t end) override {
    return RefBackend::slice(x, axis, begin, end - (breaks_ == "short slice" && end - begin > 1 ? 1 : 0));
  }
  Result<kit::Array> slice_update(const kit::Array& x, const kit::Array& update, int axis, std::int64_t begin) override {
    if (breaks_ == "forgotten write") return x;
    const bool fits = begin + shape(update)[2] < shape(x)[2];
    return RefBackend::slice_update(x, update, axis, begin + (breaks_ == "late write" && fits ? 1 : 0));
  }
  Result<kit::Array> concatenate(std::span<const kit::Array> parts, int axis) override {
    std::vector<kit::Array> order(parts.begin(), parts.end());
    if (breaks_ == "newest first") std::ranges::reverse(order);
    return RefBackend::concatenate(order, axis);
  }
  /// What comes back from the host; a cache is the only thing that is as long.
  Result<kit::Array> from_host(const Tensor& tensor) override {
    auto copy = tensor.copy();
    const auto slots = copy.dim(2);
    for (std::int64_t slot = 0; breaks_ == "restored shifted" && slot < slots; ++slot)
      for_each_index({copy.dim(0), copy.dim(1), 1, copy.dim(3)}, [&](std::span<const std::int64_t> i) {
        copy.set({i[0], i[1], slot, i[3]}, tensor.at({i[0], i[1], (slot + 1) % slots, i[3]}));
      });
    return RefBackend::from_host(copy);
  }
  Result<std::vector<kit::Array>> quantise(const kit::Array& x, int bits, int group) override {
    CULPRIT_TRY(auto planes, RefBackend::quantise(x, bits, group));
    if (breaks_ == "stale scales" && scales_ != nullptr && shape(scales_) == shape(planes[1]))
      std::swap(planes[1], scales_);
    else
      scales_ = planes[1];
    return planes;
  }
  Result<kit::Array> dequantise(std::span<const kit::Array> planes, int bits, int group) override {
    std::vector<kit::Array> used(planes.begin(), planes.end());
    if (breaks_ == "neighbour's scale") {
      const auto groups = shape(used[1])[3];
      CULPRIT_TRY(const auto first, RefBackend::slice(used[1], 3, 0, 1));
      CULPRIT_TRY(const auto rest, RefBackend::slice(used[1], 3, 1, groups));
      CULPRIT_TRY(used[1], RefBackend::concatenate(std::vector{rest, first}, 3));
    }
    return RefBackend::dequantise(used, bits, group);
  }

 private:
  std::string breaks_;
  kit::Array scales_;
};

TEST(CachePrograms, ShowEachBrokenOp) {
  const std::vector<std::pair<std::string, std::vector<const char*>>> planted = {
      {"short slice", {"concat", "padded", "rotating:size=5,keep=2", "sink_window:sink=2,window=3", "quantized:bits=8,group=32"}},
      {"forgotten write", {"padded", "rotating:size=5,keep=2", "quantized:bits=8,group=32"}},
      {"late write", {"padded", "rotating:size=300,keep=4", "quantized:bits=4,group=64"}},
      {"newest first", {"concat", "padded", "rotating:size=5,keep=2", "sink_window:sink=2,window=3", "quantized:bits=8,group=32"}},
      {"stale scales", {"quantized:bits=8,group=32", "quantized:bits=4,group=64"}},
      {"neighbour's scale", {"quantized:bits=8,group=32", "quantized:bits=2,group=32"}},
  };
  for (const auto& [breaks, caches] : planted)
    for (const auto* cache : caches) {
      BrokenBackend backend(breaks);
      Counts counts;
      EXPECT_NE(broken_by(backend, cache, counts), "") << breaks << ", " << cache;
    }
}

// A copy that comes back shifted by a slot: each kind shows it, and only after a restore.
TEST(CachePrograms, ShowARestoreThatShiftsSlots) {
  for (const auto* cache : kCaches) {
    RefBackend right("culprit-ref");
    BrokenBackend broken("restored shifted");
    KvCache held(*CacheSpec::parse(cache), DType::f32);
    auto x = Tensor::zeros(DType::f32, {kRows, kHeads, 3, kChannels});
    for_each_index(x.shape(), [&](std::span<const std::int64_t> i) { x.set(i, static_cast<double>(i[2] * 7 + i[3] % 5)); });
    ASSERT_TRUE(held.update(right, *right.from_host(x)));
    const auto before = right.to_host(held.live())->values();
    ASSERT_TRUE(held.restore(right));
    EXPECT_EQ(right.to_host(held.live())->values(), before) << cache;
    ASSERT_TRUE(held.restore(broken));
    EXPECT_NE(right.to_host(held.live())->values(), before) << cache;
  }
}

// What an intervention writes is read as it was written, though a quantised cache could not hold it.
TEST(CachePrograms, AnOverwrittenQuantisedSlotIsReadAsItIs) {
  RefBackend backend("culprit-ref");
  KvCache cache(*CacheSpec::parse("quantized:bits=4,group=32"), DType::f32);
  auto x = Tensor::zeros(DType::f32, {kRows, kHeads, 4, kChannels});
  for_each_index(x.shape(), [&](std::span<const std::int64_t> i) { x.set(i, std::cos(static_cast<double>(i[2] + 3 * i[3]))); });
  const auto before = backend.to_host(*cache.update(backend, *backend.from_host(x)))->copy();
  auto changed = before.copy();
  changed.set({0, 1, 2, 5}, 0.123);
  ASSERT_TRUE(cache.overwrite(backend, *backend.from_host(changed)));
  EXPECT_EQ(backend.to_host(cache.live())->values(), changed.values());
  const auto after = *backend.to_host(*cache.update(backend, *backend.from_host(x.sliced(2, 0, 1))));
  EXPECT_EQ(after.sliced(2, 0, 4).values(), changed.values());
  ASSERT_TRUE(cache.restore(backend));
  EXPECT_EQ(backend.to_host(cache.live())->sliced(2, 0, 4).values(), changed.values());
  ASSERT_TRUE(cache.trim(backend, 3));
  EXPECT_EQ(backend.to_host(cache.live())->values(), changed.sliced(2, 0, 2).values()) << "what is taken back is forgotten";
  ASSERT_TRUE(cache.update(backend, *backend.from_host(x.sliced(2, 2, 3))));
  EXPECT_EQ(backend.to_host(cache.live())->sliced(2, 2, 3).values(), before.sliced(2, 2, 3).values());
}

TEST(CachePrograms, PoisonOfAQuantisedCacheLiesWhereNobodyReads) {
  RefBackend backend("culprit-ref");
  KvCache cache(*CacheSpec::parse("quantized:bits=8,group=32"), DType::f32, true);
  const auto x = *backend.from_host(Tensor::zeros(DType::f32, {1, kHeads, 2, kChannels}));
  const auto read = *backend.to_host(*cache.update(backend, x));
  EXPECT_EQ(cache.capacity(), 256) << "the first buffer has a whole step too";
  for (const double value : read.values()) EXPECT_EQ(value, 0);
}

}  // namespace
}  // namespace culprit::ref
