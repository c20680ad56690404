#include "locate/ledger.h"

#include <gtest/gtest.h>

namespace culprit {
namespace {

Entry base_entry() {
  Entry entry;
  entry.engine = "mlx@0.32.4";
  entry.library_sha256 = "aa";
  entry.load.model = "model.gguf";
  entry.plan.sequences = {{1, 2, 3, 4}};
  entry.plan.sequence_ids = {0};
  entry.plan.chunks = {1, 1, 1, 1};
  return entry;
}

TEST(Ledger, ContrastsRunsThatDifferInOneFactor) {
  Ledger ledger;
  const int one = ledger.add(base_entry());
  auto entry = base_entry();
  entry.plan.chunks = {4};
  const int two = ledger.add(entry);
  const auto factor = ledger.contrast(one, two);
  ASSERT_TRUE(factor);
  EXPECT_EQ(*factor, "schedule");
}

TEST(Ledger, RefusesTwoFactorsAndNamesThem) {
  Ledger ledger;
  const int one = ledger.add(base_entry());
  auto entry = base_entry();
  entry.plan.chunks = {4};
  entry.plan.cache = "padded";
  const int two = ledger.add(entry);
  const auto factor = ledger.contrast(one, two);
  ASSERT_FALSE(factor);
  EXPECT_EQ(factor.error().id, "confounded");
  EXPECT_NE(factor.error().message.find("cache; schedule"), std::string::npos) << factor.error().message;
}

TEST(Ledger, RefusesRunsThatDifferInNothing) {
  Ledger ledger;
  const int one = ledger.add(base_entry()), two = ledger.add(base_entry());
  ASSERT_FALSE(ledger.contrast(one, two));
  EXPECT_EQ(ledger.contrast(one, two).error().id, "confounded");
}

TEST(Ledger, RefusesARunThatWasNotMade) {
  Ledger ledger;
  const int one = ledger.add(base_entry());
  ASSERT_FALSE(ledger.contrast(one, 7));
  EXPECT_EQ(ledger.contrast(one, 7).error().id, "never-run");
}

TEST(Ledger, RefusesAnEngineWhoseLibraryChanged) {
  Ledger ledger;
  const int one = ledger.add(base_entry());
  auto entry = base_entry();
  entry.plan.chunks = {4};
  entry.library_sha256 = "bb";
  const int two = ledger.add(entry);
  ASSERT_FALSE(ledger.contrast(one, two));
  EXPECT_EQ(ledger.contrast(one, two).error().id, "library-changed");
}

TEST(Ledger, ARowAloneAndInABatchDifferInRowsOnly) {
  auto batch = base_entry();
  batch.plan.sequences = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  batch.plan.sequence_ids = {0, 1};
  EXPECT_EQ(differing_factors(base_entry(), batch), std::vector<std::string>{"rows"});
  batch.plan.sequences[0][2] = 9;  // another prompt of the same identity is a second factor
  EXPECT_EQ(differing_factors(base_entry(), batch), (std::vector<std::string>{"rows", "tokens.0"}));
}

TEST(Ledger, EverySettingIsAFactor) {
  const auto differs = [](auto&& change) {
    auto entry = base_entry();
    change(entry);
    return differing_factors(base_entry(), entry);
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(differs([](Entry& e) { e.engine = "mlx@0.29.4"; }), Names{"engine"});
  EXPECT_EQ(differs([](Entry& e) { e.load.dtype = DType::bf16; }), Names{"dtype"});
  EXPECT_EQ(differs([](Entry& e) { e.load.weights = WeightSource::engine; }), Names{"weights"});
  EXPECT_EQ(differs([](Entry& e) { e.load.weight_fault.q4_1_nibble_offset = 2; }), Names{"weights"});
  EXPECT_EQ(differs([](Entry& e) { e.load.model = "other.gguf"; }), Names{"model"});
  EXPECT_EQ(differs([](Entry& e) { e.plan.reprefill = true; }), Names{"schedule"});
  EXPECT_EQ(differs([](Entry& e) { e.plan.position_base = 5; }), Names{"position base"});
  EXPECT_EQ(differs([](Entry& e) { e.plan.variants["rope"] = "composed"; }), Names{"variant rope"});
  EXPECT_EQ(differs([](Entry& e) { e.plan.interventions.push_back({}); }), Names{"interventions"});
  EXPECT_EQ(differs([](Entry& e) { e.plan.faults.push_back({"F01", {}}); }), Names{"faults"});
  EXPECT_EQ(differs([](Entry& e) { e.plan.sync = Sync::each_op; }), Names{"evaluation"});
  EXPECT_TRUE(differs([](Entry& e) { e.plan.capture = {"logits"}; }).empty()) << "what is recorded changes no result";
}

}  // namespace
}  // namespace culprit
