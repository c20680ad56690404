#include <gtest/gtest.h>

#include <map>

#include "arm/arms.h"
#include "locate/ledger.h"

namespace culprit {
namespace {

// Law: two arms of a relation differ in exactly one factor, or the ledger would refuse every conclusion from it.
TEST(Relations, TheLedgerAllowsEachOfThem) {
  Fixture fixture;
  fixture.sequences = random_sequences(3, 6, 1000, 1);
  Ledger ledger;
  std::map<std::string, int> entries;
  for (const auto& arm : make_arms(fixture)) {
    Entry entry;
    entry.engine = "ref";
    entry.plan = arm.plan;
    entries[arm.name] = ledger.add(entry);
  }
  for (const auto& relation : relations()) {
    const auto factor = ledger.contrast(entries.at(relation.expected), entries.at(relation.actual));
    EXPECT_TRUE(factor) << relation.name << ": " << (factor ? "" : factor.error().message);
  }
}

}  // namespace
}  // namespace culprit
