#include "qualify/accuracy.h"

#include <gtest/gtest.h>

namespace culprit {
namespace {

CaseScore localised(const std::string& name, const std::string& accepted, bool explained) {
  CaseScore score;
  score.name = name;
  score.outcome = Outcome::localised;
  score.changed_ops = score.named_ops = {"sdpa"};
  NamedOp named;
  named.op = std::string("sdpa");
  named.planted = std::string("F22");
  named.accepted = accepted;
  named.explained = named.proved = explained;
  named.condition = std::string("always");
  score.named.push_back(named);
  score.runs = 40;
  score.runs_first = 2;
  return score;
}

Campaign small_campaign() {
  Campaign campaign;
  campaign.engine = std::string("ref");
  campaign.count = 2;
  campaign.nulls = 1;
  campaign.seed = 3;
  for (const char* name : {"1", "2", "null-1"}) campaign.cases.push_back({*draw_case(3, name), {}});
  campaign.cases[0].drawn.faults = campaign.cases[1].drawn.faults = {*FaultSpec::parse("F22")};
  campaign.cases[0].score = localised("1", "F22", true);
  campaign.cases[1].score = localised("2", "F04:tokens=any", false);
  campaign.cases[2].score.name = std::string("null-1");
  campaign.cases[2].score.outcome = Outcome::quiet;
  return campaign;
}

bool holds(const std::string& page, const std::string& line) { return page.find(line) != std::string::npos; }

TEST(Accuracy, CountsAndListsAWrongFault) {
  const auto page = accuracy_page(small_campaign());
  EXPECT_TRUE(holds(page, "| localised, of those that changed something | 2 of 2 | 100.0 % |")) << page;
  EXPECT_TRUE(holds(page, "| proved | 1 of 2 | 50.0 % |")) << page;
  EXPECT_TRUE(holds(page, "| a wrong fault accepted | 1 of 2 |")) << page;
  EXPECT_TRUE(holds(page, "| planted | F04 (predicts else) | F22 |")) << page;
  EXPECT_TRUE(holds(page, "| F22 | 1 | 1 |")) << page;
  EXPECT_TRUE(holds(page, "a wrong fault is accepted for sdpa: F04:tokens=any")) << page;
  EXPECT_TRUE(holds(page, "culprit qualify --engine ref --seed 3 --only 2")) << page;
  EXPECT_FALSE(holds(page, "--only 1\n")) << page;
}

TEST(Accuracy, CountsAndListsAFalseAlarm) {
  auto campaign = small_campaign();
  campaign.cases[1].score = localised("2", "F22", true);
  EXPECT_TRUE(holds(accuracy_page(campaign), "## Misses\n\nNone.")) << accuracy_page(campaign);
  auto& null = campaign.cases[2].score;
  null.outcome = Outcome::false_alarm;
  null.why = std::string("localised: rope is named");
  null.named_ops = {"rope"};
  const auto page = accuracy_page(campaign);
  EXPECT_TRUE(holds(page, "| false alarms on nulls | 1 of 1 | 100.0 % |")) << page;
  EXPECT_TRUE(holds(page, "false_alarm: localised: rope is named")) << page;
  EXPECT_TRUE(holds(page, "| no fault |")) << page;
  EXPECT_TRUE(holds(page, "--only null-1")) << page;
}

TEST(Accuracy, WhatWasNotMetIsNoMissAndNoHit) {
  auto campaign = small_campaign();
  campaign.cases[1].score = {};
  campaign.cases[1].score.name = std::string("2");
  campaign.cases[1].score.outcome = Outcome::inconclusive;
  const auto page = accuracy_page(campaign);
  EXPECT_TRUE(holds(page, "other runs of the model do | 1 of 2 |")) << page;
  EXPECT_TRUE(holds(page, "| localised, of those that changed something | 1 of 1 |")) << page;
  EXPECT_TRUE(holds(page, "| F22 | 1 | 1 |")) << page;
}

// Newcombe, Statistics in Medicine 17, 1998, table I: 81 of 263 and 0 of 20 by Wilson's score without correction.
TEST(Accuracy, WilsonsIntervalIsThePublishedOne) {
  const auto [low, high] = wilson_interval(81, 263);
  EXPECT_NEAR(low, 0.2553, 5e-5);
  EXPECT_NEAR(high, 0.3662, 5e-5);
  const auto [none_low, none_high] = wilson_interval(0, 20);
  EXPECT_EQ(none_low, 0);
  EXPECT_NEAR(none_high, 0.1611, 5e-5);
}

}  // namespace
}  // namespace culprit
