// However the tokens are fed, the same logical values come out: bit for bit, since the reference sums in the same order whatever the
// schedule.
#include <map>
#include <span>

#include "decode/architecture.h"
#include "decode/node_eval.h"
#include "engines/ref/test_engine.h"

namespace culprit::ref {
namespace {

using Place = std::pair<int, std::int64_t>;  // sequence, position

/// The values of `tap` for each token of each row; of the last step that fed it.
std::map<Place, std::vector<double>> by_token(const Trace& trace, const std::string& tap) {
  std::map<Place, std::vector<double>> found;
  for (const auto& record : trace.records()) {
    if (record.tap != tap) continue;
    const auto tensor = *trace.tensor(record);
    const int token_axis = tensor.rank() - 2;
    for (std::int64_t row = 0; row < record.at.rows(); ++row)
      for (std::int64_t token = 0; token < record.at.tokens(); ++token)
        found[{record.at.sequence[static_cast<std::size_t>(row)],
               record.at.position[static_cast<std::size_t>(row)][static_cast<std::size_t>(token)]}] =
            tensor.sliced(0, row, row + 1).sliced(token_axis, token, token + 1).values();
  }
  return found;
}

const std::vector<std::string> kTaps = {"embed", "layers.0.q_rope", "layers.1.attn", "layers.2.residual", "logits"};

void expect_same_tokens(const Trace& expected, const Trace& actual) {
  for (const auto& tap : kTaps) {
    const auto wanted = by_token(expected, tap);
    EXPECT_EQ(wanted.size(), 3u * 7u);
    EXPECT_EQ(wanted, by_token(actual, tap)) << tap;
  }
}

class Schedules : public testing::TestWithParam<DType> {};

TEST_P(Schedules, IncrementalChunkedAndReprefilledAgreeWithOnePrefill) {
  TestEngine engine(GetParam());
  const auto whole = engine.run(three_rows({7}));
  expect_same_tokens(whole, engine.run(three_rows({1, 1, 1, 1, 1, 1, 1})));
  expect_same_tokens(whole, engine.run(three_rows({3, 3, 1})));
  auto again = three_rows({2, 1, 4});
  again.reprefill = true;
  const auto reprefilled = engine.run(again);
  expect_same_tokens(whole, reprefilled);
  EXPECT_EQ(tensor_at(reprefilled, 1, "logits").shape(), (Shape{3, 3, engine.facts().vocabulary}));
}

TEST_P(Schedules, ThePaddedCacheGivesTheBitsOfTheConcatenatedOne) {
  TestEngine engine(GetParam());
  auto plan = three_rows({3, 1, 2, 1});
  const auto concat = engine.run(plan);
  plan.cache = "padded";
  const auto padded = engine.run(plan);
  EXPECT_EQ(differing(concat, padded), std::vector<std::string>{});
  // ...from another layout: 3 slots, then room for 256 more.
  const auto& layout = padded.find(1, "layers.0.k_cache")->layout;
  EXPECT_EQ(layout.shape, (Shape{3, engine.facts().kv_heads, 4, engine.facts().head_channels}));
  EXPECT_EQ(layout.strides[1], (3 + 256) * engine.facts().head_channels);
}

TEST_P(Schedules, ARowInABatchHasTheBitsOfTheRowAlone) {
  TestEngine engine(GetParam());
  const auto batch = three_rows({3, 1, 1});
  const auto together = engine.run(batch);
  for (std::size_t row = 0; row < 3; ++row) {
    auto plan = batch;
    plan.sequences = {batch.sequences[row]};
    plan.sequence_ids = {static_cast<int>(row)};
    const auto alone = engine.run(plan);
    for (const auto& record : alone.records()) {
      const auto begin = static_cast<std::int64_t>(row);
      EXPECT_EQ(alone.tensor(record)->values(), tensor_at(together, record.step, record.tap).sliced(0, begin, begin + 1).values())
          << record.tap;
    }
  }
}

TEST_P(Schedules, FormsOfRopeAndTimesOfEvaluationChangeNothing) {
  TestEngine engine(GetParam());
  const auto plan = three_rows({3, 1, 1});
  const auto plain = engine.run(plan);
  const auto with = [&](std::map<std::string, std::string> variants, Sync sync) {
    auto changed = plan;
    changed.variants = std::move(variants);
    changed.sync = sync;
    return differing(plain, engine.run(changed));
  };
  const std::vector<std::string> none;
  EXPECT_EQ(with({{"rope.rank", "3"}}, Sync::lazy), none);
  EXPECT_EQ(with({{"rope.offset", "per_row"}}, Sync::lazy), none);
  EXPECT_EQ(with({{"rope", "composed"}, {"sdpa", "composed"}, {"rms_norm", "composed"}}, Sync::lazy), none);
  EXPECT_EQ(with({}, Sync::each_op), none);
  EXPECT_EQ(with({}, Sync::each_layer), none);
  EXPECT_EQ(with({}, Sync::async), none);
}

TEST_P(Schedules, ACacheThatDropsNothingGivesTheValuesOfTheConcatenatedOne) {
  TestEngine engine(GetParam());
  auto plan = three_rows({3, 1, 2, 1});
  const auto concat = engine.run(plan);
  for (const auto* cache : {"rotating:size=7,keep=2", "rotating:size=300", "sink_window:sink=2,window=5"}) {
    plan.cache = cache;
    expect_same_tokens(concat, engine.run(plan));
  }
}

TEST_P(Schedules, DraftsThatAreTakenBackChangeNothing) {
  TestEngine engine(GetParam());
  auto plan = three_rows({2, 1, 1, 3});
  const auto plain = engine.run(plan);
  const auto argmax = engine.last().argmax;
  plan.drafts = {{.step = 0, .tokens = {{5}, {6}, {7}}}, {.step = 1, .tokens = {{90, 3, 4}, {1, 2, 3}, {50, 51, 52}}}};
  for (const auto* cache : {"concat", "padded", "rotating:size=7,keep=2", "sink_window:sink=1,window=7"}) {
    plan.cache = cache;
    for (const bool poison : {false, true}) {
      plan.poison = poison;
      expect_same_tokens(plain, engine.run(plan));
      EXPECT_EQ(engine.last().argmax, argmax) << "of the last token that stays";
    }
  }
}

constexpr const char* kThatHoldSeven[] = {"concat", "padded", "rotating:size=7,keep=2", "sink_window:sink=1,window=7"};

TEST_P(Schedules, ARestoredCacheGivesTheBitsOfOneThatStayed) {
  TestEngine engine(GetParam());
  auto plan = three_rows({2, 1, 1, 3});
  const auto plain = engine.run(plan);
  plan.restore_after = {0, 2};
  plan.drafts = {{.step = 2, .tokens = {{5}, {6}, {7}}}};
  for (const auto* cache : kThatHoldSeven) {
    plan.cache = cache;
    for (const bool poison : {false, true}) {
      plan.poison = poison;
      expect_same_tokens(plain, engine.run(plan));
    }
  }
}

TEST_P(Schedules, ARingIsRestoredAsItIsStored) {
  TestEngine engine(GetParam());
  auto plan = three_rows({3, 1, 1, 1, 1});
  for (const auto* cache : {"rotating:size=4,keep=1", "sink_window:sink=1,window=2"}) {
    plan.cache = cache;
    plan.restore_after = {};
    const auto stayed = engine.run(plan);
    plan.restore_after = {0, 1, 2, 3};
    EXPECT_EQ(differing(stayed, engine.run(plan)), std::vector<std::string>{}) << cache;
  }
}

TEST_P(Schedules, NothingOfTheSequenceWhosePrefixIsReusedIsSeen) {
  TestEngine engine(GetParam());
  const auto plain = engine.run(three_rows({2, 1, 1, 3}));
  const auto argmax = engine.last().argmax;
  auto plan = three_rows({2, 1, 1, 3});
  plan.chunks = {1, 3};
  plan.reuse = Reuse{.common = 3, .tokens = {{90, 3, 4}, {1, 2, 3}, {50, 51, 52}}, .chunks = {2, 2, 1, 1}};
  for (const auto* cache : kThatHoldSeven) {
    plan.cache = cache;
    for (const bool poison : {false, true}) {
      plan.poison = poison;
      const auto reused = engine.run(plan);
      expect_same_tokens(plain, reused);
      EXPECT_EQ(engine.last().argmax.back(), argmax.back());
      EXPECT_EQ(engine.last().argmax.size(), 6u) << "the other sequence's steps are in the trace";
      EXPECT_EQ(reused.find(2, "layers.0.k_cache")->at.position[0], std::vector<std::int64_t>{4});
      EXPECT_EQ(reused.find(4, "layers.0.k_cache")->at.slot[0].size(), 4u);
      EXPECT_NE(tensor_at(reused, 1, "embed").sliced(1, 1, 2).values(), tensor_at(plain, 2, "embed").values());
    }
  }
  plan.cache = "rotating:size=5";
  EXPECT_EQ(engine.error_of(plan), "not-supported");
  plan.cache = "sink_window:sink=1,window=3";
  EXPECT_EQ(engine.error_of(plan), "not-supported") << "the other sequence would drop what is common";
}

Facts facts_with_32_channels() {
  auto facts = tiny_llama_facts();
  facts.head_channels = facts.rope.dims = 32;
  return facts;
}

TEST_P(Schedules, AQuantisedCacheReadsTheSameHoweverItIsFed) {
  TestEngine engine(GetParam(), WeightSource::culprit, nullptr, facts_with_32_channels());
  const auto concat = engine.run(three_rows({7}));
  for (const auto* cache : {"quantized:bits=8,group=32", "quantized:bits=4,group=32"}) {
    auto plan = three_rows({7});
    plan.cache = cache;
    const auto whole = engine.run(plan);
    EXPECT_NE(by_token(concat, "logits"), by_token(whole, "logits")) << "what is lost shows";
    for (const auto& chunks : std::vector<std::vector<int>>{{1, 1, 1, 1, 1, 1, 1}, {3, 3, 1}}) {
      auto other = three_rows(chunks);
      other.cache = cache;
      other.poison = chunks.size() == 3;
      expect_same_tokens(whole, engine.run(other));
      other.restore_after = {0, 1};
      other.drafts = {{.step = 1, .tokens = {{5}, {6}, {7}}}};
      expect_same_tokens(whole, engine.run(other));
    }
    auto again = three_rows({2, 1, 4});
    again.cache = cache;
    again.reprefill = true;
    expect_same_tokens(whole, engine.run(again));
    auto reused = three_rows({3, 4});
    reused.cache = cache;
    reused.chunks = {2, 2};
    reused.reuse = Reuse{.common = 3, .tokens = {{90}, {1}, {50}}, .chunks = {3, 1}};
    expect_same_tokens(whole, engine.run(reused));
  }
}

TEST(QuantisedCaches, AreRefusedWhereTheyHaveNoForm) {
  TestEngine engine;
  auto plan = three_rows({2, 1});
  plan.cache = "quantized:bits=8,group=32";
  EXPECT_EQ(engine.error_of(plan), "not-supported") << "heads of 8 channels";
  class WithoutQuantisation : public RefBackend {
   public:
    WithoutQuantisation() : RefBackend("culprit-ref") {}
    [[nodiscard]] bool quantises() const override { return false; }
  } backend;
  TestEngine without(DType::f32, WeightSource::culprit, &backend, facts_with_32_channels());
  EXPECT_EQ(without.error_of(plan), "not-supported");
  plan.cache = "padded";
  EXPECT_EQ(without.error_of(plan), "");
}

TEST_P(Schedules, ShorterRowsArePaddedOnTheLeft) {
  TestEngine engine(GetParam());
  auto plan = three_rows({2, 1, 3, 1});
  plan.position_base = GetParam() == DType::f32 ? 0 : 5;
  const auto base = plan.position_base;
  const auto equal = engine.run(plan);
  for (std::size_t row = 1; row < 3; ++row) plan.sequences[row].resize(7 - 2 * row);
  for (const auto* cache : {"concat", "padded", "sink_window:sink=3,window=4"}) {
    plan.cache = cache;
    const auto padded = engine.run(plan);
    const auto* record = padded.find(1, "layers.0.k_cache");
    EXPECT_EQ(record->at.slot, (std::vector<std::vector<std::int64_t>>{{base, base + 1, base + 2}, {-1, -1, base}, {-1, -1, -1}}));
    EXPECT_EQ(record->at.position, (std::vector<std::vector<std::int64_t>>{{base + 2}, {base}, {base - 2}}));
    for (const auto& tap : kTaps) {
      const auto expected = by_token(equal, tap), actual = by_token(padded, tap);
      int compared = 0;
      for (const auto& [place, values] : actual) {
        if (place.second < base) continue;
        EXPECT_EQ(values, expected.at(place)) << tap;
        ++compared;
      }
      EXPECT_EQ(compared, 7 + 5 + 3);
    }
  }
}

TEST_P(Schedules, RecomputingACallFromItsCoordinatesGivesItBack) {
  TestEngine engine(GetParam());
  auto plan = three_rows({2, 1, 3, 1, 1});
  const auto changed = [&](RunPlan other) {
    const auto plain = engine.run(other);
    for (const auto* tap : {"layers.*.?_cache", "layers.*.attn", "layers.*.?_rope"})
      other.interventions.push_back({.kind = Intervention::Kind::exact, .tap = tap});
    return differing(plain, engine.run(other));
  };
  for (const auto* cache : {"concat", "padded", "rotating:size=3,keep=1", "sink_window:sink=1,window=2"}) {
    plan.cache = cache;
    EXPECT_EQ(changed(plan), std::vector<std::string>{}) << cache;
  }
  plan.cache = "padded";
  plan.restore_after = {1, 3};
  EXPECT_EQ(changed(plan), std::vector<std::string>{}) << "restored";
  auto reused = plan;
  reused.restore_after = {};
  reused.chunks = {2, 1, 1};
  reused.reuse = Reuse{.common = 4, .tokens = {{5, 6}, {6, 7}, {7, 8}}, .chunks = {5, 1}};
  EXPECT_EQ(changed(reused), std::vector<std::string>{}) << "reused";
  plan.restore_after = {};
  plan.drafts = {{.step = 1, .tokens = {{5, 6}, {6, 7}, {7, 8}}}};
  EXPECT_EQ(changed(plan), std::vector<std::string>{}) << "with a draft";
  for (const std::int64_t base : {0, 257}) {
    plan.position_base = base;
    plan.sequences[1].resize(6);
    plan.sequences[2].resize(3);
    EXPECT_EQ(changed(plan), std::vector<std::string>{}) << "padded from " << base;
  }
}

// Chunked is incremental then, whatever is dropped: no layer sees beyond its window.
TEST_P(Schedules, ARingAsLargeAsTheWindowShowsNowhere) {
  if (GetParam() == DType::f64) GTEST_SKIP() << "a ring's slots are summed in another order, which only float64 shows";
  auto facts = find_architecture("mistral")->tiny();
  facts.window = 3;
  TestEngine engine(GetParam(), WeightSource::culprit, nullptr, facts);
  const auto concat = engine.run(three_rows({1, 1, 1, 1, 1, 1, 1}));
  for (const auto& chunks : std::vector<std::vector<int>>{{1, 1, 1, 1, 1, 1, 1}, {3, 3, 1}, {1, 4, 1, 1}, {7}})
    for (const auto* cache : {"concat", "padded", "rotating:size=3", "rotating:size=4", "sink_window:sink=0,window=3"}) {
      auto plan = three_rows(chunks);
      plan.cache = cache;
      expect_same_tokens(concat, engine.run(plan));
    }
  auto narrow = three_rows({1, 1, 1, 1, 1, 1, 1});
  narrow.cache = "rotating:size=2";
  EXPECT_NE(by_token(concat, "logits"), by_token(engine.run(narrow), "logits"));
}

TEST_P(Schedules, ARingThatDropsTokensIsOneOfItsOwnKindOnly) {
  TestEngine engine(GetParam());
  auto plan = three_rows({1, 1, 1, 1, 1, 1, 1});
  const auto concat = engine.run(plan);
  plan.cache = "rotating:size=4,keep=1";
  const auto ring = engine.run(plan);
  EXPECT_EQ(ring.find(6, "layers.0.k_cache")->at.slot[0], (std::vector<std::int64_t>{0, 4, 5, 6}));
  EXPECT_NE(by_token(concat, "logits"), by_token(ring, "logits"));
  auto chunked = three_rows({4, 1, 1, 1});
  chunked.cache = plan.cache;
  expect_same_tokens(ring, engine.run(chunked));
}

INSTANTIATE_TEST_SUITE_P(DTypes, Schedules, testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

TEST(Positions, StartAtTheBaseInTapsAndInRope) {
  TestEngine engine(DType::f64);
  auto plan = three_rows({2, 1});
  plan.position_base = 4099;
  plan.sequence_ids = {5, 3, 8};
  const auto trace = engine.run(plan);
  const auto* record = trace.find(1, "layers.0.q_rope");
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->at.sequence, (std::vector<int>{5, 3, 8}));
  EXPECT_EQ(record->at.position, (std::vector<std::vector<std::int64_t>>(3, {4101})));
  EXPECT_EQ(record->at.slot, (std::vector<std::vector<std::int64_t>>(3, {4099, 4100, 4101})));
  const auto rotated = rope(to_array(tensor_at(trace, 1, "layers.0.q")), engine.facts().rope, record->at.position);
  EXPECT_EQ(values_at(trace, 1, "layers.0.q_rope"), rotated.values);
  EXPECT_NE(values_at(trace, 1, "layers.0.q_rope"), values_at(engine.run(three_rows({2, 1})), 1, "layers.0.q_rope"));
}

/// A backend whose slices of one cache are one slot too short, or whose concatenation puts the newest token first.
class FaultyBackend : public RefBackend {
 public:
  FaultyBackend() : RefBackend("culprit-ref") {}
  bool short_slices = false, newest_first = false, shifted_copies = false;

  /// Heads that come back from the host are a cache's.
  Result<kit::Array> from_host(const Tensor& tensor) override {
    if (!shifted_copies || tensor.rank() != 4 || tensor.dim(2) < 2) return RefBackend::from_host(tensor);
    CULPRIT_TRY(const auto whole, RefBackend::from_host(tensor));
    CULPRIT_TRY(const auto first, RefBackend::slice(whole, 2, 0, 1));
    CULPRIT_TRY(const auto rest, RefBackend::slice(whole, 2, 1, tensor.dim(2)));
    return RefBackend::concatenate(std::vector{rest, first}, 2);
  }

  Result<kit::Array> slice(const kit::Array& x, int axis, std::int64_t begin, std::int64_t end) override {
    const bool breaks = short_slices && axis == 2 && end - begin > 1 && ++slices_ == 2;
    return RefBackend::slice(x, axis, begin, breaks ? end - 1 : end);
  }
  Result<kit::Array> concatenate(std::span<const kit::Array> parts, int axis) override {
    std::vector<kit::Array> order(parts.begin(), parts.end());
    if (newest_first && shape(parts.back())[2] == 1) std::ranges::reverse(order);
    return RefBackend::concatenate(order, axis);
  }

 private:
  int slices_ = 0;
};

// INV-1: the cached length is the slot axis of every layer's keys and values.
TEST(Invariants, ALayerWhoseCacheIsShorterIsAnEngineError) {
  FaultyBackend backend;
  TestEngine engine(DType::f32, WeightSource::culprit, &backend);
  auto plan = three_rows({2, 1, 1});
  plan.drafts = {{.step = 1, .tokens = {{1}, {2}, {3}}}};
  EXPECT_EQ(engine.error_of(plan), "");
  backend.short_slices = true;
  EXPECT_EQ(engine.error_of(plan), "engine-error");
}

// INV-3: the same history, chunked otherwise, gives the same bytes.
TEST(Invariants, AHistoryThatDependsOnItsChunksIsADifference) {
  FaultyBackend backend;
  TestEngine engine(DType::f32, WeightSource::culprit, &backend);
  const auto held = [&](std::vector<int> chunks) {
    const auto plan = three_rows(std::move(chunks));
    const auto trace = engine.run(plan);
    return values_at(trace, static_cast<int>(plan.chunks.size()) - 1, "layers.0.v_cache");
  };
  EXPECT_EQ(held({2, 2}), held({2, 1, 1}));
  backend.newest_first = true;
  EXPECT_NE(held({2, 2}), held({2, 1, 1}));
}

TEST(Invariants, ACopyWhoseSlotsAreShiftedShowsAfterTheRestore) {
  FaultyBackend backend;
  TestEngine engine(DType::f32, WeightSource::culprit, &backend, facts_with_32_channels());
  for (const auto* cache : {"concat", "padded", "rotating:size=4", "sink_window:sink=1,window=5", "quantized:bits=8,group=32"}) {
    auto plan = three_rows({2, 1, 1});
    plan.cache = cache;
    plan.restore_after = {1};
    backend.shifted_copies = false;
    const auto right = engine.run(plan);
    backend.shifted_copies = true;
    const auto wrong = engine.run(plan);
    EXPECT_EQ(values_at(wrong, 1, "logits"), values_at(right, 1, "logits")) << cache;
    EXPECT_NE(values_at(wrong, 2, "layers.0.v_cache"), values_at(right, 2, "layers.0.v_cache")) << cache;
    EXPECT_EQ(wrong.find(2, "layers.0.v_cache")->at.slot, right.find(2, "layers.0.v_cache")->at.slot);
  }
}

TEST(Argmax, IsOfTheLastTokenOfEachRow) {
  TestEngine engine;
  const auto trace = engine.run(three_rows({3, 1}));
  ASSERT_EQ(engine.last().argmax.size(), 2u);
  for (int step = 0; step < 2; ++step) {
    const auto logits = tensor_at(trace, step, "logits");
    for (std::int64_t row = 0; row < 3; ++row) {
      const auto last = logits.sliced(0, row, row + 1).sliced(1, logits.dim(1) - 1, logits.dim(1)).values();
      const auto best = std::max_element(last.begin(), last.end()) - last.begin();
      EXPECT_EQ(engine.last().argmax[static_cast<std::size_t>(step)][static_cast<std::size_t>(row)], best);
    }
  }
}

/// Counts what it is asked to evaluate.
class CountingBackend : public RefBackend {
 public:
  CountingBackend() : RefBackend("culprit-ref") {}
  int waited = 0, begun = 0;
  Result<void> eval(std::span<const kit::Array> arrays) override {
    waited += arrays.size() == 1;
    return {};
  }
  Result<void> async_eval(std::span<const kit::Array> arrays) override {
    begun += arrays.size() == 1;
    return {};
  }
};

TEST(Sync, ActsAfterEachOpOrAfterThoseThatAreNamed) {
  CountingBackend backend;
  TestEngine engine(DType::f32, WeightSource::culprit, &backend);
  const auto nodes = static_cast<int>(engine.weights().model().graph().nodes().size());
  const auto counted = [&](Sync sync, std::vector<std::string> taps) {
    auto plan = three_rows({2, 1});
    plan.sync = sync;
    plan.sync_taps = std::move(taps);
    backend.waited = backend.begun = 0;
    engine.run(plan);
    return std::pair{backend.waited, backend.begun};
  };
  EXPECT_EQ(counted(Sync::lazy, {}), std::pair(0, 0));
  EXPECT_EQ(counted(Sync::each_op, {}), std::pair(2 * nodes, 0));
  EXPECT_EQ(counted(Sync::async, {}), std::pair(0, 2 * nodes));
  EXPECT_EQ(counted(Sync::each_op, {"layers.0.q", "logits@1"}), std::pair(3, 0));
  EXPECT_EQ(counted(Sync::async, {"layers.*.q@0"}), std::pair(0, engine.facts().layers));
  auto plan = three_rows({2, 1});
  plan.sync = Sync::each_op;
  plan.sync_taps = {"layers.0.nothing"};
  EXPECT_EQ(engine.error_of(plan), "tap-unknown");
}

TEST(Capture, KeepsWhatIsAskedForAndNothingElse) {
  TestEngine engine;
  const auto everything = engine.run(three_rows({3, 1, 1}));
  EXPECT_EQ(everything.records().size(), 3 * engine.weights().model().graph().nodes().size());
  auto plan = three_rows({3, 1, 1});
  plan.capture = {"layers.*.attn", "logits"};
  plan.capture_steps = {0, 2};
  const auto some = engine.run(plan);
  EXPECT_EQ(some.records().size(), 2u * 4u);
  for (const auto& record : some.records()) EXPECT_EQ(record.hash, everything.find(record.step, record.tap)->hash) << record.tap;
  plan.hash_only = true;
  const auto hashes = engine.run(plan);
  ASSERT_EQ(hashes.records().size(), some.records().size());
  for (const auto& record : hashes.records()) {
    EXPECT_EQ(record.file, "");
    EXPECT_EQ(record.hash, everything.find(record.step, record.tap)->hash);
  }
}

}  // namespace
}  // namespace culprit::ref
