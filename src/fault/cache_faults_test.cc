// Faults of the ops that write a cache, on caches whose slot s of row r holds 10 r + s + 1: which token lies where can be read off.
#include <gtest/gtest.h>

#include <numeric>

#include "fault/fault.h"

namespace culprit {
namespace {

using Values = std::vector<double>;
using Slots = std::vector<std::int64_t>;

Tensor column(const Values& values, std::int64_t rows = 1) {
  return Tensor::from_values(DType::f32, {rows, 1, static_cast<std::int64_t>(values.size()) / rows, 1}, values);
}

/// A write of `tokens` tokens into a cache that held `before`; positions count from 0, and a token at position p is p + 1.
struct Write {
  Facts facts;
  Node node{.op = Op::cache_write, .output = "layers.0.k_cache", .inputs = {"layers.0.k_rope"}, .weight = "", .layer = 0};
  OpCall call;
  Write(Slots before, std::int64_t tokens, Slots after, const char* cache = "concat") {
    call.node = &node;
    call.context.facts = &facts;
    call.context.cache_spec = *CacheSpec::parse(cache);
    const auto last = *std::ranges::max_element(after);
    Values fed, held, read;
    auto& position = call.context.at.position.emplace_back();
    for (std::int64_t i = 0; i < tokens; ++i) {
      position.push_back(last - tokens + 1 + i);
      fed.push_back(static_cast<double>(position.back() + 1));
    }
    for (const auto p : before) held.push_back(static_cast<double>(p + 1));
    for (const auto p : after) read.push_back(static_cast<double>(p + 1));
    call.context.at.sequence = {0};
    call.context.at.slot = {after};
    call.inputs = {column(fed)};
    call.result = column(read);
    if (before.empty()) return;
    call.context.cache = call.previous = column(held);
    call.context.cache_slot = {before};
  }
};

/// What `spec` makes of the write; empty: nothing.
Values broken(const char* spec, const OpCall& call) {
  const auto output = apply_fault(*FaultSpec::parse(spec), call);
  EXPECT_TRUE(output);
  return *output ? (**output).values() : Values{};
}

constexpr const char* kRing = "rotating:size=3,keep=1";

TEST(F13, AppendsAChunkToTheRingAsItLies) {
  // Tokens 0, 4, 2 lie in the ring. In order of time 2 is the oldest that may go; as it lies, 4 is.
  const Write chunk({0, 4, 3}, 2, {0, 4, 5, 6}, kRing);
  EXPECT_EQ(broken("F13:how=slice", chunk.call), (Values{1, 4, 6, 7}));
  EXPECT_EQ(broken("F13:how=slice", Write({0, 1, 2}, 2, {0, 2, 3, 4}, kRing).call), Values{}) << "not wrapped: both orders are one";
  EXPECT_EQ(broken("F13:how=slice", Write({0, 4, 3}, 1, {0, 4, 5}, kRing).call), Values{}) << "one token is written in place";
  EXPECT_EQ(broken("F13:how=slice", Write({0, 1, 2}, 2, {0, 1, 2, 3, 4}).call), Values{}) << "no ring";
}

TEST(F13, TakesBackByTheCountersAlone) {
  // A token and two drafts were appended to 0, 1; the ring is 3 long. Right: 1 goes, 3 takes its place.
  Write step({0, 1, 2}, 1, {0, 3, 2}, kRing);
  step.call.previous = column({1, 2, 3, 41, 42});
  EXPECT_EQ(broken("F13:how=trim", step.call), Values{}) << "nothing was taken back";
  step.call.taken_back = 2;
  EXPECT_EQ(broken("F13:how=trim", step.call), (Values{1, 4, 42}));
  step.call.previous = column({1, 2, 3});
  EXPECT_EQ(broken("F13:how=trim", step.call), Values{}) << "the buffer is not longer than the ring";
}

TEST(F13, FreesOneSlotWhereAChunkLeftSeveralTooMany) {
  const Write step({0, 1, 2, 3, 4}, 1, {0, 5, 4}, kRing);
  EXPECT_EQ(broken("F13:how=one_token", step.call), (Values{1, 6, 4}));
  EXPECT_EQ(broken("F13:how=one_token", Write({0, 1, 2, 3}, 1, {0, 4, 3}, kRing).call), Values{}) << "one too many";
  auto drafted = step;
  drafted.call.node = &drafted.node;
  drafted.call.taken_back = 2;
  EXPECT_EQ(broken("F13:how=one_token", drafted.call), Values{});
}

TEST(F18, WrapsTheSlotsOfNewTokens) {
  EXPECT_EQ(broken("F18:index=slot,limit=4", Write({0, 1, 2}, 1, {0, 1, 2, 3}).call), Values{}) << "the last slot below the limit";
  EXPECT_EQ(broken("F18:index=slot,limit=4", Write({0, 1, 2, 3}, 1, {0, 1, 2, 3, 4}).call), (Values{5, 2, 3, 4, 0}));
  EXPECT_EQ(broken("F18:index=slot,limit=4", Write({0, 1, 2}, 3, {0, 1, 2, 3, 4, 5}).call), (Values{5, 6, 3, 4, 0, 0}));
  EXPECT_EQ(broken("F18:index=slot,limit=4", Write({}, 5, {0, 1, 2, 3, 4}).call), (Values{5, 2, 3, 4, 0}));
  EXPECT_EQ(broken("F18:index=slot,limit=256", Write({0, 1, 2, 3}, 1, {0, 1, 2, 3, 4}).call), Values{});
  EXPECT_EQ(broken("F18:index=position,limit=4", Write({0, 1, 2, 3}, 1, {0, 1, 2, 3, 4}).call), Values{}) << "RoPE's";
}

TEST(F18, WrapsAByteOfASlot) {
  Slots before(256), after(257);
  std::iota(before.begin(), before.end(), 0);
  std::iota(after.begin(), after.end(), 0);
  const auto values = broken("F18:index=slot,limit=256", Write(before, 1, after).call);
  ASSERT_EQ(values.size(), 257u);
  EXPECT_EQ(values[0], 257);
  EXPECT_EQ(values[1], 2);
  EXPECT_EQ(values[256], 0);
}

TEST(F20, GivesBackAForeignAnUnwrittenOrAHalfOverwrittenBlock) {
  Write step({0, 1}, 1, {0, 1, 2});
  step.call.previous = column({1, 2, 53, 54});  // of the other sequence
  for (const char* spec : {"F20:block=foreign", "F20:block=unwritten", "F20:block=half"})
    EXPECT_EQ(broken(spec, step.call), Values{}) << "a draft may have been taken back: nothing was reused";
  step.call.prefix_reused = true;
  EXPECT_EQ(broken("F20:block=foreign", step.call), (Values{53, 54, 3}));
  EXPECT_EQ(broken("F20:block=unwritten", step.call), (Values{0, 0, 3}));
  EXPECT_EQ(broken("F20:block=half", step.call), (Values{1, 54, 3}));
  step.call.previous = column({1, 2, 53});
  EXPECT_EQ(broken("F20:block=foreign", step.call), (Values{53, 2, 3})) << "the other sequence had one token of its own";
}

TEST(F20, ACopyThatIsMadeAgainHasNoForeignBlock) {
  Write step({0, 1, 2, 3}, 1, {0, 1, 2, 3, 4});
  step.call.restored = true;
  EXPECT_EQ(broken("F20:block=foreign", step.call), Values{});
  EXPECT_EQ(broken("F20:block=unwritten", step.call), (Values{0, 0, 0, 0, 5}));
  EXPECT_EQ(broken("F20:block=half", step.call), (Values{1, 2, 0, 0, 5}));
}

TEST(F21, WritesTheSlotOfTheFirstStep) {
  Write step({0, 1, 2}, 1, {0, 1, 2, 3});
  EXPECT_EQ(broken("F21", step.call), Values{}) << "no single-token step was seen";
  step.call.traced_slot = 3;
  EXPECT_EQ(broken("F21", step.call), Values{}) << "this is the first one";
  step.call.traced_slot = 1;
  EXPECT_EQ(broken("F21", step.call), (Values{1, 4, 3, 0}));
  step.call.traced_slot = 7;
  EXPECT_EQ(broken("F21", step.call), (Values{1, 2, 3, 0})) << "behind the live view";
  Write chunk({0, 1, 2}, 2, {0, 1, 2, 3, 4});
  chunk.call.traced_slot = 1;
  EXPECT_EQ(broken("F21", chunk.call), Values{}) << "another graph";
}

TEST(F23, TakesAllOfTheCacheAlongWithTheDraft) {
  Write step({0, 1}, 1, {0, 1, 2});
  EXPECT_EQ(broken("F23:cache=reset", step.call), Values{}) << "no draft";
  step.call.previous = column({1, 2, 53, 54});
  step.call.taken_back = 2;
  EXPECT_EQ(broken("F23:cache=reset", step.call), (Values{0, 0, 3}));
  EXPECT_EQ(broken("F23:cache=draft", step.call), (Values{1, 2, 53}));
}

TEST(F06, LeavesTheShorterOfJoiningRowsAtTheLeft) {
  Write step({0, 1}, 1, {0, 1, 2});
  auto& call = step.call;
  call.context.at = {{0, 1}, {{2}, {1}}, {{0, 1, 2}, {-1, 0, 1}}};
  call.inputs = {column({3, 12}, 2)};
  call.result = column({1, 2, 3, 0, 11, 12}, 2);
  EXPECT_EQ(broken("F06:append=longest", call), Values{}) << "no row joined";
  call.rows_changed = true;
  EXPECT_EQ(broken("F06:append=longest", call), (Values{1, 2, 3, 11, 0, 12}));
  EXPECT_EQ(broken("F06:append=late", call), (Values{1, 2, 0, 0, 11, 0}));
}

TEST(SlotsBehind, AreWhatWasReadAndIsNoLongerLive) {
  SlotsBehind behind;
  EXPECT_TRUE(behind.read(column({1, 2, 53, 54})).empty());
  EXPECT_EQ(behind.read(column({1, 2, 3})).values(), Values{54}) << "the new token took a place";
  EXPECT_EQ(behind.read(column({1, 2, 3})).values(), Values{54}) << "a second reader";
  EXPECT_TRUE(behind.read(column({1, 2, 3, 4})).empty());
}

}  // namespace
}  // namespace culprit
