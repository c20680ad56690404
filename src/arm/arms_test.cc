#include "arm/arms.h"

#include <gtest/gtest.h>

#include <set>

namespace culprit {
namespace {

Fixture fixture() {
  Fixture f;
  f.sequences = random_sequences(3, 6, 1000, 1);
  return f;
}

TEST(Arms, EveryPlanIsValidAndNamedOnce) {
  std::set<std::string> names;
  for (const auto& arm : make_arms(fixture())) {
    EXPECT_TRUE(validate(arm.plan)) << arm.name;
    EXPECT_TRUE(names.insert(arm.name).second) << arm.name;
    EXPECT_GT(arm.cost_tokens, 0) << arm.name;
    EXPECT_FALSE(arm.what.empty()) << arm.name;
  }
  EXPECT_EQ(names.size(), arm_entries().size());
}

TEST(Arms, CheapestFirst) {
  const auto arms = make_arms(fixture());
  for (std::size_t i = 1; i < arms.size(); ++i) EXPECT_LE(arms[i - 1].cost_tokens, arms[i].cost_tokens);
}

TEST(Arms, RelationsNameArms) {
  std::set<std::string> names;
  for (const auto& arm : make_arms(fixture())) names.insert(arm.name);
  for (const auto& relation : relations()) {
    EXPECT_TRUE(names.contains(relation.expected)) << relation.expected;
    EXPECT_TRUE(names.contains(relation.actual)) << relation.actual;
  }
}

std::set<std::string> relations_with(const char* cache) {
  auto f = fixture();
  f.cache = cache;
  std::set<std::string> names;
  for (const auto& relation : relations(f)) names.insert(relation.name);
  return names;
}

TEST(Arms, ThoseThatChooseNoCacheHaveTheFixtures) {
  auto f = fixture();
  f.cache = "rotating:size=64,keep=0";
  for (const auto& arm : make_arms(f)) {
    if (arm.name == "incremental" || arm.name == "joining rows") {
      EXPECT_EQ(arm.plan.cache, f.cache);
    } else if (arm.name == "padded cache") {
      EXPECT_EQ(arm.plan.cache, "padded");
    }
  }
}

TEST(Arms, RelationsThatNeedNotHoldWithACacheAreLeftOut) {
  EXPECT_EQ(relations_with("concat").size(), relations().size());
  const auto padded = relations_with("padded");
  EXPECT_TRUE(padded.contains("incremental = prefill"));
  EXPECT_TRUE(padded.contains("position base 0 = 257"));
  EXPECT_TRUE(padded.contains("poisoned = padded cache"));
  EXPECT_TRUE(padded.contains("ring: single tokens = a chunk that fits, then single tokens"));
  EXPECT_FALSE(padded.contains("padded cache = concat cache")) << "the same run twice";
  EXPECT_FALSE(padded.contains("rotating cache = concat cache"));
  const auto quantized = relations_with("quantized:bits=8,group=32");
  EXPECT_TRUE(quantized.contains("incremental = prefill"));
  EXPECT_FALSE(quantized.contains("position base 0 = 257"));
  EXPECT_TRUE(relations_with("rotating:size=64,keep=0").contains("incremental = prefill"));
  const auto dropping = relations_with("rotating:size=3,keep=0");
  EXPECT_FALSE(dropping.contains("incremental = prefill"));
  EXPECT_TRUE(dropping.contains("row 0 alone = row 0 in a batch"));
  const auto sinks = relations_with("sink_window:sink=1,window=1");
  EXPECT_FALSE(sinks.contains("left-padded rows = rows of equal length")) << "a padded row's tokens are fed, and dropped, at later steps";
  EXPECT_TRUE(sinks.contains("row 0 alone = row 0 in a batch"));
  EXPECT_TRUE(relations_with("sink_window:sink=1,window=63").contains("left-padded rows = rows of equal length"));
}

TEST(Arms, TheFixtureCanShowABatchFault) {
  const auto sequences = random_sequences(3, 6, 1000, 7);
  EXPECT_NE(sequences[0], sequences[1]);
  EXPECT_NE(sequences[1], sequences[2]);
  EXPECT_EQ(sequences, random_sequences(3, 6, 1000, 7));
  EXPECT_NE(sequences, random_sequences(3, 6, 1000, 8));
}

}  // namespace
}  // namespace culprit
