// Rows that join a running batch and leave it: each row decodes as if it were alone, the audit judges such runs fully, and an engine that
// moves a cache's rows wrongly is named at the cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "audit/audit.h"
#include "audit/weights.h"
#include "decode/architecture.h"
#include "engines/ref/test_engine.h"

namespace culprit::ref {
namespace {

using TokenKey = std::pair<int, std::int64_t>;  // sequence, position

/// The values of `tap` for each token; of the last step that fed it.
std::map<TokenKey, std::vector<double>> by_token(const Trace& trace, const std::string& tap) {
  std::map<TokenKey, std::vector<double>> found;
  for (const auto& record : trace.records()) {
    if (record.tap != tap) continue;
    const auto tensor = *trace.tensor(record);
    for (std::int64_t row = 0; row < record.at.rows(); ++row)
      for (std::int64_t token = 0; token < record.at.tokens(); ++token) {
        const auto r = static_cast<std::size_t>(row);
        found[{record.at.sequence[r], record.at.position[r][static_cast<std::size_t>(token)]}] =
            tensor.sliced(0, row, row + 1).sliced(tensor.rank() - 2, token, token + 1).values();
      }
  }
  return found;
}

/// What a cache holds of a sequence after the last step that fed it, by position.
std::map<std::int64_t, std::vector<double>> cached(const Trace& trace, const std::string& tap, int sequence, std::int64_t positions_end) {
  std::map<std::int64_t, std::vector<double>> held;
  for (const auto& record : trace.records()) {
    const auto found = std::ranges::find(record.at.sequence, sequence);
    if (record.tap != tap || found == record.at.sequence.end()) continue;
    const auto tensor = *trace.tensor(record);
    const auto row = found - record.at.sequence.begin();
    const auto& slots = record.at.slot[static_cast<std::size_t>(row)];
    EXPECT_EQ(tensor.dim(0), record.at.rows()) << "INV-1";
    EXPECT_EQ(tensor.dim(2), std::ssize(slots)) << "INV-1";
    held.clear();
    for (std::int64_t slot = 0; slot < std::ssize(slots); ++slot)
      if (const auto position = slots[static_cast<std::size_t>(slot)]; position >= 0 && position < positions_end)
        held[position] = tensor.sliced(0, row, row + 1).sliced(2, slot, slot + 1).values();
  }
  return held;
}

RunPlan alone(const RunPlan& plan, std::size_t row) {
  RunPlan one;
  one.sequences = {plan.sequences[row]};
  one.sequence_ids = {sequence_of(plan, row)};
  one.position_base = plan.position_base;
  one.chunks = {static_cast<int>(plan.sequences[row].size())};
  return one;
}

/// Every tap of every token, and every cache, is that of the row alone, bit for bit: the reference sums in the order of positions.
void expect_as_alone(TestEngine& engine, const RunPlan& plan, const Trace& together) {
  for (std::size_t row = 0; row < plan.sequences.size(); ++row) {
    const auto trace = engine.run(alone(plan, row));
    const auto end = plan.position_base + std::ssize(plan.sequences[row]);
    for (const auto& record : trace.records()) {
      if (record.tap.ends_with("_cache")) {
        const auto id = sequence_of(plan, row);
        EXPECT_EQ(cached(trace, record.tap, id, end), cached(together, record.tap, id, end))
            << "INV-3: " << record.tap << " of row " << row;
        continue;
      }
      const auto expected = by_token(trace, record.tap), actual = by_token(together, record.tap);
      for (const auto& [key, values] : expected) {
        const auto found = actual.find(key);
        ASSERT_NE(found, actual.end()) << record.tap << " of sequence " << key.first << " at " << key.second;
        EXPECT_EQ(values, found->second) << record.tap << " of sequence " << key.first << " at " << key.second;
      }
    }
  }
}

/// INV-2: the next position never decreases but by what is taken back.
void expect_positions_go_on(const RunPlan& plan, const Trace& trace) {
  std::map<int, std::int64_t> next;
  for (const auto& record : trace.records()) {
    if (record.tap != "embed") continue;
    for (std::size_t row = 0; row < record.at.sequence.size(); ++row) {
      const auto& fed = record.at.position[row];
      const int sequence = record.at.sequence[row];
      EXPECT_EQ(fed.front(), next.contains(sequence) ? next.at(sequence) : fed.front());
      next[sequence] = fed.back() + 1 - foreign_at(plan, record.step);
    }
  }
}

AuditReport audited(TestEngine& engine, const Trace& trace, DType dtype) {
  ModelWeights weights(engine.weights().model(), dtype);
  auto reports = audit(engine.weights().model(), weights, {&trace});
  if (!reports) throw std::runtime_error(to_string(reports.error()));
  return std::move(reports->front());
}

void expect_all_judged_and_right(TestEngine& engine, const Trace& trace, DType dtype) {
  const auto report = audited(engine, trace, dtype);
  for (const auto& op : report.ops) {
    const auto& tap = engine.weights().model().graph().nodes()[static_cast<std::size_t>(op.node)].output;
    EXPECT_NE(op.judgement, Judgement::corruption) << tap << " at step " << op.step << ": " << op.reason;
    const auto& slots = trace.find(op.step, tap)->at.slot;
    const bool holds_any =
        std::ranges::any_of(slots, [](const auto& row) { return std::ranges::any_of(row, [](auto p) { return p >= 0; }); });
    EXPECT_TRUE(op.judgement != Judgement::not_tested || !holds_any) << tap << " at step " << op.step << ": " << op.reason;
    EXPECT_TRUE(op.reason.empty()) << tap << ": " << op.reason;
  }
}

std::vector<int> tokens_of(std::size_t row, int count) {
  std::vector<int> tokens;
  const int r = static_cast<int>(row);
  for (int i = 0; i < count; ++i) tokens.push_back((11 + 37 * r + 29 * i + r * i * i) % 97);
  return tokens;
}

/// Rows 0 and 1 begin, row 2 begins alone and joins them; row 1 leaves.
RunPlan example() {
  RunPlan plan;
  plan.sequences = {tokens_of(0, 4), tokens_of(1, 3), tokens_of(2, 4)};
  plan.active = {{0, 1}, {2}, {0, 1, 2}, {0, 2}};
  plan.chunks = {2, 2, 1, 1};
  return plan;
}

class JoiningRows : public testing::TestWithParam<DType> {};

TEST_P(JoiningRows, DecodeAsTheyDoAlone) {
  TestEngine engine(GetParam());
  auto plan = example();
  for (const std::int64_t base : {0, 257})
    for (const auto* cache : {"concat", "padded"})
      for (const bool poison : {false, true}) {
        plan.position_base = base;
        plan.cache = cache;
        plan.poison = poison;
        const auto trace = engine.run(plan);
        expect_as_alone(engine, plan, trace);
        if (GetParam() != DType::f64) expect_all_judged_and_right(engine, trace, GetParam());
      }
}

TEST(RowsThatJoin, TheCoordinatesSayWhichRowsAreThere) {
  TestEngine engine;
  auto plan = example();
  plan.sequence_ids = {7, 5, 9};
  plan.chunks[1] = 1;
  plan.sequences[2] = tokens_of(2, 4);
  plan.active.push_back({2});
  plan.chunks.push_back(1);
  const auto trace = engine.run(plan);
  const auto at = [&](int step) { return trace.find(step, "layers.0.k_cache")->at; };
  using Lists = std::vector<std::vector<std::int64_t>>;
  EXPECT_EQ(at(1).sequence, (std::vector<int>{9}));
  EXPECT_EQ(at(2).sequence, (std::vector<int>{7, 5, 9}));
  EXPECT_EQ(at(2).position, (Lists{{2}, {2}, {1}}));
  EXPECT_EQ(at(2).slot, (Lists{{0, 1, 2}, {0, 1, 2}, {-1, 0, 1}})) << "a shorter row is padded on the left";
  EXPECT_EQ(at(3).sequence, (std::vector<int>{7, 9}));
  EXPECT_EQ(at(3).slot, (Lists{{0, 1, 2, 3}, {-1, 0, 1, 2}}));
  EXPECT_EQ(at(4).slot, (Lists{{0, 1, 2, 3}})) << "padding that all rows have is cut off";
  EXPECT_EQ(engine.last().argmax[2].size(), 3u);
}

TEST(RowsThatJoin, ThePaddedCacheKeepsItsSpareSlots) {
  TestEngine engine;
  auto plan = example();
  plan.cache = "padded";
  const auto trace = engine.run(plan);
  // Step 2 made a buffer of 2 + 256 slots; step 3 takes two of its three rows, and writes in place.
  const auto& layout = trace.find(3, "layers.0.k_cache")->layout;
  EXPECT_EQ(layout.shape, (Shape{2, engine.facts().kv_heads, 4, engine.facts().head_channels}));
  EXPECT_EQ(layout.strides[1], (2 + 256) * engine.facts().head_channels);
}

TEST(RowsThatJoin, WhatHasNoMeaningIsRefused) {
  TestEngine engine;
  const auto error_of = [&](auto&& change) {
    auto plan = example();
    change(plan);
    return engine.error_of(plan);
  };
  EXPECT_EQ(error_of([](RunPlan&) {}), "");
  EXPECT_EQ(error_of([](RunPlan& p) { p.reprefill = true; }), "plan-invalid");
  EXPECT_EQ(error_of([](RunPlan& p) { p.cache = "rotating:size=8"; }), "not-supported");
  EXPECT_EQ(error_of([](RunPlan& p) { p.cache = "sink_window:sink=2,window=8"; }), "not-supported");
  EXPECT_EQ(error_of([](RunPlan& p) { p.variants["rope.rank"] = "3"; }), "plan-invalid");
  EXPECT_EQ(error_of([](RunPlan& p) { p.variants["rope.offset"] = "scalar"; }), "plan-invalid");
  EXPECT_EQ(error_of([](RunPlan& p) { p.sequence_ids = {0, 0, 1}; }), "plan-invalid");
  EXPECT_EQ(error_of([](RunPlan& p) { p.drafts = {{.step = 1, .tokens = {{1}, {2}, {3}}}}; }), "plan-invalid") << "it feeds one row";
  EXPECT_EQ(error_of([](RunPlan& p) { p.drafts = {{.step = 1, .tokens = {{1}}}}; }), "");
}

/// A random program: rows begin, padded or not, decode in changing company and order, pause, draft and leave.
RunPlan random_program(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  RunPlan plan;
  const std::size_t rows = 2 + below(4);
  std::vector<int> fed(rows, 0), padding(rows, 0);
  const auto step = [&](std::vector<int> active) {
    const int chunk = 1 + static_cast<int>(below(3));
    bool one_is_not_padded = false;
    for (const int row : active) {
      auto& count = fed[static_cast<std::size_t>(row)];
      if (count == 0) {
        padding[static_cast<std::size_t>(row)] = one_is_not_padded ? static_cast<int>(below(4)) : 0;
        one_is_not_padded = true;
      }
      count += chunk;
    }
    if (below(4) == 0) {
      const auto tokens = 1 + below(2);
      auto& draft = plan.drafts.emplace_back();
      draft.step = static_cast<int>(plan.chunks.size());
      for (std::size_t i = 0; i < active.size(); ++i)
        for (std::size_t t = 0; t < tokens; ++t) {
          if (t == 0) draft.tokens.emplace_back();
          draft.tokens.back().push_back(static_cast<int>(below(97)));
        }
    }
    plan.chunks.push_back(chunk);
    plan.active.push_back(std::move(active));
  };
  for (std::size_t s = 0; s < 7; ++s) {
    std::vector<int> active;
    for (std::size_t row = 0; row < rows; ++row)
      if (below(2) == 0) active.push_back(static_cast<int>(row));
    if (active.empty()) continue;
    if (below(3) == 0) std::ranges::shuffle(active, random);
    step(active);
  }
  for (std::size_t row = 0; row < rows; ++row)
    while (fed[row] <= padding[row]) step({static_cast<int>(row)});
  for (std::size_t row = 0; row < rows; ++row) plan.sequences.push_back(tokens_of(row, fed[row] - padding[row]));
  plan.position_base = below(2) == 0 ? 0 : 257;
  plan.cache = below(2) == 0 ? "concat" : "padded";
  plan.poison = plan.cache == "padded" && below(2) == 0;
  return plan;
}

TEST_P(JoiningRows, AnyProgramOfJoinsLeavesAndStepsGivesEachRowItsOwn) {
  TestEngine engine(GetParam());
  std::size_t changes = 0, padded = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    const auto plan = random_program(seed);
    const auto valid = validate(plan);
    ASSERT_TRUE(valid) << to_string(valid.error());
    for (int step = 0; step < static_cast<int>(plan.chunks.size()); ++step) changes += rows_changed_at(plan, step);
    padded += has_padding(plan);
    const auto trace = engine.run(plan);
    expect_as_alone(engine, plan, trace);
    expect_positions_go_on(plan, trace);
    if (GetParam() != DType::f64) expect_all_judged_and_right(engine, trace, GetParam());
    if (HasFailure()) break;
  }
  EXPECT_GT(changes, 100u);
  EXPECT_GT(padded, 5u);
}

INSTANTIATE_TEST_SUITE_P(DTypes, JoiningRows, testing::Values(DType::f64, DType::f32, DType::bf16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

TEST(RowsThatJoin, RecomputingACallFromItsCoordinatesGivesItBack) {
  TestEngine engine;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    auto plan = random_program(seed);
    const auto plain = engine.run(plan);
    for (const auto* tap : {"layers.*.?_cache", "layers.*.attn", "layers.*.?_rope"})
      plan.interventions.push_back({.kind = Intervention::Kind::exact, .tap = tap});
    EXPECT_EQ(differing(plain, engine.run(plan)), std::vector<std::string>{});
  }
}

TEST(RowsThatJoin, LayersThatSlideCountEachRowsOwnPositions) {
  TestEngine engine(DType::f32, WeightSource::culprit, nullptr, find_architecture("gemma3")->tiny());
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    const auto plan = random_program(seed);
    const auto trace = engine.run(plan);
    expect_as_alone(engine, plan, trace);
    expect_all_judged_and_right(engine, trace, DType::f32);
  }
}

/// An engine that moves rows of a cache wrongly.
class FaultyBackend : public RefBackend {
 public:
  enum class Fault { none, keeps_the_row_before, swaps_rows, pads_on_the_right };
  explicit FaultyBackend(Fault fault) : RefBackend("culprit-ref"), fault_(fault) {}

  Result<kit::Array> slice(const kit::Array& x, int axis, std::int64_t begin, std::int64_t end) override {
    const bool breaks = fault_ == Fault::keeps_the_row_before && axis == 0 && begin > 0;
    return RefBackend::slice(x, axis, begin - breaks, end - breaks);
  }
  Result<kit::Array> concatenate(std::span<const kit::Array> parts, int axis) override {
    std::vector<kit::Array> order(parts.begin(), parts.end());
    if (fault_ == Fault::swaps_rows && axis == 0) std::ranges::reverse(order);
    if (fault_ == Fault::pads_on_the_right && axis == 2) {
      const auto first = to_host(parts[0])->values();
      if (std::ranges::all_of(first, [](double value) { return value == 0; })) std::ranges::reverse(order);
    }
    return RefBackend::concatenate(order, axis);
  }

 private:
  Fault fault_;
};

struct Move {
  const char* name;
  FaultyBackend::Fault fault;
  int first_wrong_step;
};
void PrintTo(const Move& move, std::ostream* out) { *out << move.name; }

class WrongMove : public testing::TestWithParam<Move> {};

TEST_P(WrongMove, IsNamedAtTheCacheFromItsStepOn) {
  FaultyBackend backend(GetParam().fault);
  for (const auto dtype : {DType::f32, DType::bf16})
    for (const auto* cache : {"concat", "padded"}) {
      TestEngine engine(dtype, WeightSource::culprit, &backend);
      auto plan = example();
      plan.sequences[2] = tokens_of(2, 3);
      plan.chunks[1] = 1;  // row 2 is shorter when it joins
      plan.cache = cache;
      const auto trace = engine.run(plan);
      int first_wrong = -1;
      for (const auto& op : audited(engine, trace, dtype).ops) {
        const auto& node = engine.weights().model().graph().nodes()[static_cast<std::size_t>(op.node)];
        if (op.judgement != Judgement::corruption) continue;
        EXPECT_EQ(node.op, Op::cache_write) << node.output << " at step " << op.step;
        if (first_wrong < 0) first_wrong = op.step;
      }
      EXPECT_EQ(first_wrong, GetParam().first_wrong_step) << cache;
    }
}

INSTANTIATE_TEST_SUITE_P(Ways, WrongMove,
                         testing::Values(Move{"none", FaultyBackend::Fault::none, -1},
                                         Move{"keeps_a_row_that_left", FaultyBackend::Fault::keeps_the_row_before, 3},
                                         Move{"swaps_rows_when_one_joins", FaultyBackend::Fault::swaps_rows, 2},
                                         Move{"pads_on_the_wrong_side", FaultyBackend::Fault::pads_on_the_right, 2}),
                         [](const auto& move) { return std::string(move.param.name); });

/// The trace again, as if it had been made of another plan.
Trace under_plan(const Trace& trace, const RunPlan& plan, const std::filesystem::path& folder) {
  auto header = trace.header();
  header["plan"] = to_json(plan);
  auto writer = *TraceWriter::create(folder, header);
  int step = 0;
  for (const auto& record : trace.records()) {
    if (record.step != step && !writer.end_step()) ADD_FAILURE() << step;
    step = record.step;
    writer.add(record.step, record.tap, *trace.tensor(record), record.at);
  }
  EXPECT_TRUE(writer.end_step());
  EXPECT_TRUE(writer.finish(Json::object()));
  return *Trace::open(folder);
}

TEST(RowsThatJoin, ARowThatStaysThoughItShouldHaveLeftIsFound) {
  TestEngine engine;
  auto plan = example();
  plan.sequences[1] = tokens_of(1, 4);
  auto kept = plan;
  kept.active[3] = {0, 1};  // row 1 in place of row 2
  kept.sequences[2] = tokens_of(2, 3);
  plan.sequences[1] = tokens_of(1, 3);
  const auto trace = under_plan(engine.run(kept), plan, engine.path("kept"));
  int found = 0;
  for (const auto& op : audited(engine, trace, DType::f32).ops) {
    const auto& node = engine.weights().model().graph().nodes()[static_cast<std::size_t>(op.node)];
    if (node.op != Op::cache_write) continue;
    EXPECT_EQ(op.judgement, op.step == 3 ? Judgement::corruption : Judgement::within) << node.output << " at step " << op.step;
    EXPECT_EQ(op.reason, op.step == 3 ? "the step feeds sequences 0,2, this cache has 0,1" : "");
    ++found;
  }
  EXPECT_GT(found, 0);
}

}  // namespace
}  // namespace culprit::ref
