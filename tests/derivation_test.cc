// A verdict is derived from its runs again: what `find` wrote holds, and each thing that would make it a mere claim is refused.
#include "locate/derivation.h"

#include <gtest/gtest.h>

#include "tiny_verdict.h"

namespace culprit {
namespace {

class Derived : public testing::Test {
 protected:
  static const Json& proved() {
    static const auto verdict = verdict_of({"F01:content=zero"});
    return verdict;
  }
  /// The id with which the first defect, or one of its steps, is refused; "" when it holds.
  static std::string refusal(const Json& verdict) {
    const auto reading = read_verdict(verdict);
    if (!reading) return reading.error().id;
    for (const auto& derivation : reading->derivations) {
      for (const auto& step : derivation.steps)
        if (step.refused) return step.refused->id;
      if (derivation.refused) return derivation.refused->id;
      if (!derivation.holds()) return "holds and does not";
    }
    return reading->derivations.empty() ? "nothing" : "";
  }
  static Json& claim(Json& verdict, const std::string& rule) {
    for (auto& claim : verdict["defects"][0]["evidence"])
      if (claim["rule"] == rule) return claim;
    ADD_FAILURE() << "there is no " << rule;
    return verdict;
  }
  static Json without(const std::string& rule) {
    auto verdict = proved();
    auto& evidence = verdict["defects"][0]["evidence"];
    for (std::size_t i = evidence.size(); i-- > 0;)
      if (evidence[i]["rule"] == rule) evidence.erase(i);
    return verdict;
  }
};

TEST_F(Derived, WhatFindWroteHolds) {
  ASSERT_EQ(proved().at("verdict"), "proved");
  EXPECT_EQ(refusal(proved()), "");
  const auto text = to_text(*read_verdict(proved()));
  for (const auto* part :
       {"defect 1: proved rope", "sufficiency", "control", "necessity", "differ in interventions only", "differ in faults only"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(refusal(verdict_of({})), "");
}

TEST_F(Derived, AProofLacksNoPart) {
  for (const auto* rule : {"audit", "sufficiency", "control", "necessity"}) EXPECT_EQ(refusal(without(rule)), "not-derived") << rule;
  for (const auto* rule : {"sufficiency", "control", "necessity", "relation"}) {
    auto verdict = proved();
    claim(verdict, rule)["holds"] = false;
    EXPECT_EQ(refusal(verdict), "not-derived") << rule;
  }
  auto verdict = proved();
  for (auto& score : verdict["defects"][0]["predictions"]) score["complete"] = false;
  EXPECT_EQ(refusal(verdict), "not-derived");
  // What needs less is still derived.
  verdict["defects"][0]["status"] = "localised";
  EXPECT_EQ(refusal(verdict), "");
  auto explained = without("necessity");
  explained["defects"][0]["status"] = "explained";
  EXPECT_EQ(refusal(explained), "");
}

TEST_F(Derived, ARunThatWasNotMadeCarriesNothing) {
  auto verdict = proved();
  claim(verdict, "necessity")["runs"].push_back(9999);
  EXPECT_EQ(refusal(verdict), "never-run");
}

TEST_F(Derived, TwoFactorsAtOnceCarryNothing) {
  auto verdict = proved();
  const int run = claim(verdict, "sufficiency")["contrasts"][0]["actual"];
  verdict["runs"][static_cast<std::size_t>(run - 1)]["plan"]["cache"] = "padded";
  EXPECT_EQ(refusal(verdict), "confounded");
}

TEST_F(Derived, AContrastInAnotherFactorCarriesNothing) {
  auto verdict = proved();
  claim(verdict, "necessity")["contrasts"][0]["factor"] = "interventions";
  EXPECT_EQ(refusal(verdict), "confounded");
}

TEST_F(Derived, AnEngineThatChangedInBetweenCarriesNothing) {
  auto verdict = proved();
  const int run = claim(verdict, "control")["contrasts"][0]["actual"];
  verdict["runs"][static_cast<std::size_t>(run - 1)]["library_sha256"] = "another";
  EXPECT_EQ(refusal(verdict), "library-changed");
}

TEST_F(Derived, NoDivergenceTakesRunsThatCouldHaveShownOne) {
  auto verdict = verdict_of({});
  ASSERT_EQ(verdict.at("verdict"), "no_divergence");
  for (auto& run : verdict["runs"]) run["plan"]["position_base"] = 0;
  EXPECT_EQ(refusal(verdict), "cannot-show");
  auto nothing = verdict_of({});
  nothing["audited"] = Json::array();
  EXPECT_EQ(refusal(nothing), "not-derived");
}

TEST_F(Derived, RunsAreAskedForByTheirFactors) {
  const auto reading = read_verdict(proved());
  ASSERT_TRUE(reading);
  const auto padded = reading->ledger.having({{"cache", "padded"}});
  ASSERT_TRUE(padded);
  for (const int run : *padded) EXPECT_EQ((*reading->ledger.entry(run))->plan.cache, "padded");
  const auto both = reading->ledger.having({{"cache", "padded"}, {"variant sdpa", "composed"}});
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().id, "never-run");
  EXPECT_NE(both.error().message.find("cache = padded have "), std::string::npos) << both.error().message;
  EXPECT_EQ(reading->ledger.having({{"colour", "red"}}).error().id, "factor-unknown");
}

TEST_F(Derived, MalformedDocumentsAreNamed) {
  EXPECT_EQ(refusal(Json::array()), "verdict-invalid");
  for (const auto* key : {"schema", "version", "runs", "defects", "verdict", "decisions"}) {
    auto verdict = proved();
    verdict[key] = 7.5;
    EXPECT_EQ(refusal(verdict), "verdict-invalid") << key;
    verdict.erase(key);
    EXPECT_EQ(refusal(verdict), "verdict-invalid") << key;
  }
  for (const auto* key : {"rule", "claim", "runs", "holds"}) {
    auto verdict = proved();
    verdict["defects"][0]["evidence"][0].erase(key);
    EXPECT_EQ(refusal(verdict), "verdict-invalid") << key;
  }
}

}  // namespace
}  // namespace culprit
