#include <gtest/gtest.h>

#include <map>

#include "arm/arms.h"
#include "locate/ledger.h"

namespace culprit {
namespace {

// Law: two arms of a relation differ in exactly one factor, or the ledger would refuse every conclusion from it.
class EachCache : public testing::TestWithParam<const char*> {};

TEST_P(EachCache, TheLedgerAllowsEachRelation) {
  Fixture fixture;
  fixture.sequences = random_sequences(3, 6, 1000, 1);
  fixture.cache = GetParam();
  Ledger ledger;
  std::map<std::string, int> entries;
  for (const auto& arm : make_arms(fixture)) {
    Entry entry;
    entry.engine = "ref";
    entry.plan = arm.plan;
    entries[arm.name] = ledger.add(entry);
  }
  for (const auto& relation : relations(fixture)) {
    const auto factor = ledger.contrast(entries.at(relation.expected), entries.at(relation.actual));
    EXPECT_TRUE(factor) << relation.name << ": " << (factor ? "" : factor.error().message);
  }
}

INSTANTIATE_TEST_SUITE_P(Relations, EachCache,
                         testing::Values("concat", "padded", "rotating:size=64,keep=0", "rotating:size=3,keep=1",
                                         "sink_window:sink=1,window=63", "quantized:bits=8,group=32"));

}  // namespace
}  // namespace culprit
