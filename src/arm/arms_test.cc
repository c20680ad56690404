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

TEST(Arms, TheFixtureCanShowABatchFault) {
  const auto sequences = random_sequences(3, 6, 1000, 7);
  EXPECT_NE(sequences[0], sequences[1]);
  EXPECT_NE(sequences[1], sequences[2]);
  EXPECT_EQ(sequences, random_sequences(3, 6, 1000, 7));
  EXPECT_NE(sequences, random_sequences(3, 6, 1000, 8));
}

}  // namespace
}  // namespace culprit
