// Caches that drop tokens, take them back or keep them out of order: each live slot must hold what was written for its position.
#include <gtest/gtest.h>

#include <numeric>

#include "audit/audit.h"
#include "audit/test_trace.h"
#include "audit/weights.h"
#include "base/test_dir.h"

namespace culprit {
namespace {

constexpr const char* kInput = "layers.0.k_rope";
constexpr const char* kCache = "layers.0.k_cache";

/// One step of one row: positions fed with the value of each, and the cache after it.
struct Step {
  std::vector<std::int64_t> position;
  std::vector<double> fed;
  std::vector<std::int64_t> slot;
  std::vector<double> held;
};

class CacheKinds : public testing::Test {
 protected:
  Tensor heads(const std::vector<double>& tokens) const {
    const auto& facts = model_.facts();
    std::vector<double> values;
    for (int head = 0; head < facts.kv_heads; ++head)
      for (const double token : tokens) values.insert(values.end(), static_cast<std::size_t>(facts.head_channels), token + 1000.0 * head);
    return Tensor::from_values(DType::f32, {1, facts.kv_heads, std::ssize(tokens), facts.head_channels}, values);
  }

  /// The judgements of the cache, a step each.
  std::vector<OpAudit> audited(RunPlan plan, const std::vector<Step>& steps) {
    plan.sequences = {{1, 2, 3, 4, 5, 6, 7, 8}};
    const int common = plan.reuse ? plan.reuse->common : 0;
    plan.sequences[0].resize(static_cast<std::size_t>(std::accumulate(plan.chunks.begin(), plan.chunks.end(), common)));
    must(validate(plan));
    const auto folder = dir_ / std::to_string(traces_++);
    auto writer = must(TraceWriter::create(folder, Json{{"plan", to_json(plan)}, {"hello", Json::object()}, {"model", Json::object()}}));
    for (std::size_t step = 0; step < steps.size(); ++step) {
      const Coordinates at{.sequence = {0}, .position = {steps[step].position}, .slot = {steps[step].slot}};
      writer.add(static_cast<int>(step), kInput, heads(steps[step].fed), at);
      writer.add(static_cast<int>(step), kCache, heads(steps[step].held), at);
      must(writer.end_step());
    }
    must(writer.finish(Json::object()));
    const auto trace = must(Trace::open(folder));
    ModelWeights weights(model_, DType::f32);
    const auto report = must(audit(model_, weights, {&trace}))[0];
    std::vector<OpAudit> caches;
    for (const auto& op : report.ops)
      if (op.node == model_.graph().index_of(kCache)) caches.push_back(op);
    return caches;
  }
  Judgement worst(const RunPlan& plan, const std::vector<Step>& steps) {
    for (const auto& audit : audited(plan, steps))
      if (audit.judgement != Judgement::within) return audit.judgement;
    return Judgement::within;
  }

  TestDir dir_;
  Model model_ = tiny_model(dir_ / "model", 1);
  int traces_ = 0;
};

RunPlan plan_of(const char* cache, std::vector<int> chunks) {
  RunPlan plan;
  plan.cache = cache;
  plan.chunks = std::move(chunks);
  return plan;
}

const std::vector<Step> kRing = {{{0, 1}, {10, 11}, {0, 1}, {10, 11}},
                                 {{2}, {12}, {0, 1, 2}, {10, 11, 12}},
                                 {{3}, {13}, {0, 3, 2}, {10, 13, 12}},
                                 {{4}, {14}, {0, 3, 4}, {10, 13, 14}}};

TEST_F(CacheKinds, ARingHoldsEachPositionWhereItsSlotSays) {
  const auto plan = plan_of("rotating:size=3,keep=1", {2, 1, 1, 1});
  EXPECT_EQ(worst(plan, kRing), Judgement::within);
  auto stale = kRing;
  stale[2].held[1] = 11;
  EXPECT_EQ(worst(plan, stale), Judgement::corruption);
  auto overwritten = kRing;
  overwritten[3].held[0] = 14;
  EXPECT_EQ(worst(plan, overwritten), Judgement::corruption);
}

TEST_F(CacheKinds, ARingThatDropsTheWrongTokenIsFound) {
  const auto plan = plan_of("rotating:size=3,keep=1", {2, 1, 1, 1});
  auto kept_none = kRing;
  kept_none[2] = {{3}, {13}, {3, 1, 2}, {13, 11, 12}};
  const auto audits = audited(plan, kept_none);
  EXPECT_EQ(audits[2].judgement, Judgement::corruption);
  EXPECT_EQ(audits[2].reason, "row 0: a rotating:size=3,keep=1 cache holds positions 0,2,3 by now, this one 1,2,3");
  auto forgot_none = kRing;
  forgot_none[2] = {{3}, {13}, {0, 1, 2, 3}, {10, 11, 12, 13}};
  EXPECT_EQ(worst(plan, forgot_none), Judgement::corruption);
}

TEST_F(CacheKinds, SinksAndAWindowAreReadWholeAndStoredTrimmed) {
  const auto plan = plan_of("sink_window:sink=1,window=2", {2, 2, 1});
  std::vector<Step> steps = {{{0, 1}, {10, 11}, {0, 1}, {10, 11}},
                             {{2, 3}, {12, 13}, {0, 1, 2, 3}, {10, 11, 12, 13}},
                             {{4}, {14}, {0, 2, 3, 4}, {10, 12, 13, 14}}};
  EXPECT_EQ(worst(plan, steps), Judgement::within);
  steps[2] = {{4}, {14}, {0, 3, 4}, {10, 13, 14}};  // trimmed before the read
  EXPECT_EQ(worst(plan, steps), Judgement::corruption);
}

TEST_F(CacheKinds, WhatWasTakenBackIsGone) {
  auto plan = plan_of("concat", {2, 1, 1});
  plan.drafts = {{.step = 1, .tokens = {{7, 8}}}};
  std::vector<Step> steps = {{{0, 1}, {10, 11}, {0, 1}, {10, 11}},
                             {{2, 3, 4}, {12, 93, 94}, {0, 1, 2, 3, 4}, {10, 11, 12, 93, 94}},
                             {{3}, {13}, {0, 1, 2, 3}, {10, 11, 12, 13}}};
  EXPECT_EQ(worst(plan, steps), Judgement::within);
  auto stale = steps;
  stale[2].held[3] = 93;
  EXPECT_EQ(worst(plan, stale), Judgement::corruption) << "the draft's key at the right token's slot";
  auto kept = steps;
  kept[2] = {{3}, {13}, {0, 1, 2, 3, 4}, {10, 11, 12, 13, 94}};
  EXPECT_EQ(worst(plan, kept), Judgement::corruption) << "a draft that stayed";
}

// The other sequence's keys stood where the row's next ones belong, over two steps.
TEST_F(CacheKinds, NothingOfASequenceWhosePrefixIsReusedMayStay) {
  auto plan = plan_of("concat", {1, 1});
  plan.reuse = Reuse{.common = 2, .tokens = {{7, 8}}, .chunks = {3, 1}};
  const std::vector<Step> steps = {{{0, 1, 2}, {10, 11, 92}, {0, 1, 2}, {10, 11, 92}},
                                   {{3}, {93}, {0, 1, 2, 3}, {10, 11, 92, 93}},
                                   {{2}, {12}, {0, 1, 2}, {10, 11, 12}},
                                   {{3}, {13}, {0, 1, 2, 3}, {10, 11, 12, 13}}};
  EXPECT_EQ(worst(plan, steps), Judgement::within);
  auto stale = steps;
  stale[2].held[2] = 92;
  EXPECT_EQ(worst(plan, stale), Judgement::corruption) << "of the first step of the other sequence";
  stale = steps;
  stale[3].held[3] = 93;
  EXPECT_EQ(worst(plan, stale), Judgement::corruption) << "of its last step";
  stale = steps;
  stale[2] = {{2}, {12}, {0, 1, 2, 3}, {10, 11, 12, 93}};
  EXPECT_EQ(worst(plan, stale), Judgement::corruption) << "a token that was not taken back";
  stale = steps;
  stale[2] = {{4}, {12}, {0, 1, 2, 3, 4}, {10, 11, 92, 93, 12}};
  const auto audits = audited(plan, stale);
  EXPECT_EQ(audits[2].judgement, Judgement::corruption);
  EXPECT_EQ(audits[2].reason, "row 0: position 2 is next, 4 was fed") << "nothing was taken back";
  auto unwritten = steps;
  unwritten[2].fed[0] = 55;
  EXPECT_EQ(worst(plan, unwritten), Judgement::corruption) << "what is read is not what was written";
}

TEST_F(CacheKinds, ARestoredCacheHoldsWhatWasWrittenBefore) {
  auto plan = plan_of("padded", {2, 1, 1});
  plan.restore_after = {0, 1};
  const std::vector<Step> steps = {
      {{0, 1}, {10, 11}, {0, 1}, {10, 11}}, {{2}, {12}, {0, 1, 2}, {10, 11, 12}}, {{3}, {13}, {0, 1, 2, 3}, {10, 11, 12, 13}}};
  EXPECT_EQ(worst(plan, steps), Judgement::within);
  auto lost = steps;
  lost[2].held = {0, 11, 12, 13};
  EXPECT_EQ(worst(plan, lost), Judgement::corruption);
  auto shifted = steps;
  shifted[1].held = {11, 10, 12};
  EXPECT_EQ(worst(plan, shifted), Judgement::corruption);
}

class QuantisedCaches : public CacheKinds {
 protected:
  static Facts facts() {
    auto facts = tiny_llama_facts();
    facts.head_channels = facts.rope.dims = 64;
    return facts;
  }
  QuantisedCaches() { model_ = tiny_model(dir_ / "quantised", 1, facts()); }
};

// Equal channels make a constant group, which is exact.
TEST_F(QuantisedCaches, HoldTheQuantisationOfWhatWasWrittenLast) {
  auto plan = plan_of("quantized:bits=4,group=32", {2, 1, 1});
  plan.drafts = {{.step = 1, .tokens = {{7}}}};
  const std::vector<Step> steps = {{{0, 1}, {10, 11}, {0, 1}, {10, 11}},
                                   {{2, 3}, {12, 93}, {0, 1, 2, 3}, {10, 11, 12, 93}},
                                   {{3}, {13}, {0, 1, 2, 3}, {10, 11, 12, 13}}};
  EXPECT_EQ(worst(plan, steps), Judgement::within);
  auto stale = steps;
  stale[2].held[3] = 93;
  EXPECT_EQ(worst(plan, stale), Judgement::corruption) << "a draft";
  auto late = steps;
  late[1].held = {10, 10, 11, 12};
  EXPECT_EQ(worst(plan, late), Judgement::corruption) << "slots one late";
  auto dropped = steps;
  dropped[2] = {{3}, {13}, {1, 2, 3}, {11, 12, 13}};
  EXPECT_EQ(worst(plan, dropped), Judgement::corruption) << "it holds all";
}

// INV-2: the next position never decreases but by what is taken back.
TEST_F(CacheKinds, APositionThatGoesBackIsFound) {
  const auto plan = plan_of("concat", {2, 1, 1});
  const std::vector<Step> steps = {
      {{0, 1}, {10, 11}, {0, 1}, {10, 11}}, {{2}, {12}, {0, 1, 2}, {10, 11, 12}}, {{2}, {13}, {0, 1, 2}, {10, 11, 13}}};
  const auto audits = audited(plan, steps);
  EXPECT_EQ(audits[1].judgement, Judgement::within);
  EXPECT_EQ(audits[2].judgement, Judgement::corruption);
  EXPECT_EQ(audits[2].reason, "row 0: position 3 is next, 2 was fed");
}

}  // namespace
}  // namespace culprit
