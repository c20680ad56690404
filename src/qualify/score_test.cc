// The scorer on verdicts made by hand: what is wrong must be called wrong.
#include "qualify/score.h"

#include <gtest/gtest.h>

namespace culprit {
namespace {

/// Four calls of attention, the odd ones of one token and changed, in each of two heads.
Places attention_places() {
  Places places;
  for (int call = 0; call < 4; ++call)
    for (int head = 0; head < 2; ++head) {
      Observation place;
      place.role = "attn";
      place.head = head;
      place.heads = 2;
      place.tokens = call % 2 == 1 ? 1 : 3;
      place.bad = call % 2 == 1;
      places.all.push_back(place);
      places.calls.push_back(call);
    }
  return places;
}

class Score : public testing::Test {
 protected:
  Score() {
    drawn_.name = "7";
    drawn_.faults = {*FaultSpec::parse("F04:tokens=one")};
    truth_.seen["sdpa"] = truth_.unseen["sdpa"] = attention_places();
    truth_.same_as_planted = [](const std::string& op, const std::string& fault) { return op == "sdpa" && fault == "F04:tokens=one"; };
    verdict_.status = Status::proved;
    verdict_.defects = {defect("sdpa", "F04:tokens=one", "L = 1")};
    for (int run = 0; run < 5; ++run) verdict_.ledger.add({});
  }
  static Defect defect(const std::string& op, const std::string& fault, const std::string& condition) {
    Defect defect;
    defect.status = fault.empty() ? Status::localised : Status::proved;
    defect.op = op;
    defect.fault = fault;
    defect.condition = condition;
    defect.evidence.push_back({"audit: 2 of 5 runs have it outside its bound", {3, 4}});
    return defect;
  }
  void make_null() {
    drawn_.name = "null-1";
    drawn_.faults.clear();
    truth_ = {};
    verdict_.status = Status::no_divergence;
    verdict_.defects.clear();
  }
  [[nodiscard]] CaseScore scored() const { return score(drawn_, verdict_, truth_); }

  QualifyCase drawn_;
  Verdict verdict_;
  Truth truth_;
};

TEST_F(Score, ARightVerdictIsRight) {
  const auto score = scored();
  EXPECT_EQ(score.outcome, Outcome::localised);
  EXPECT_TRUE(is_right(score.outcome));
  EXPECT_TRUE(score.explained());
  EXPECT_TRUE(score.proved());
  EXPECT_FALSE(score.wrong_fault());
  ASSERT_EQ(score.named.size(), 1u);
  EXPECT_EQ(score.named[0].planted, "F04");
  EXPECT_TRUE(score.named[0].seen.places.exact());
  EXPECT_TRUE(score.named[0].seen.calls.exact());
  EXPECT_EQ(score.named[0].seen.places.bad_covered, 4);
  EXPECT_EQ(score.named[0].seen.places.good_left_out, 4);
  EXPECT_EQ(score.named[0].seen.calls.bad_covered, 2);
  EXPECT_EQ(score.runs, 5);
  EXPECT_EQ(score.runs_first, 3);
}

TEST_F(Score, AWrongOpIsAFailureEvenBesideTheRightOne) {
  verdict_.defects = {defect("rope", "F05", "always")};
  EXPECT_EQ(scored().outcome, Outcome::wrong_op);
  EXPECT_EQ(scored().why, "rope is named, no fault changed it");
  EXPECT_FALSE(scored().proved());
  verdict_.defects.push_back(defect("sdpa", "F04:tokens=one", "L = 1"));
  EXPECT_EQ(scored().outcome, Outcome::wrong_op);
  EXPECT_FALSE(scored().explained());
  EXPECT_FALSE(is_right(scored().outcome));
}

TEST_F(Score, AnOpThatIsNotNamedIsMissed) {
  truth_.seen["cache_write"] = attention_places();
  EXPECT_EQ(scored().outcome, Outcome::missed);
  EXPECT_EQ(scored().why, "cache_write was changed and is not named");
  EXPECT_EQ(scored().runs_first, 0);
}

TEST_F(Score, InconclusiveIsBelievedOnlyWhereNothingWasChanged) {
  verdict_.status = Status::inconclusive;
  verdict_.defects.clear();
  EXPECT_EQ(scored().outcome, Outcome::missed) << "attention was changed";
  truth_.seen.clear();
  EXPECT_EQ(scored().outcome, Outcome::missed) << "the planted runs differ from the clean ones";
  truth_.equal_to_clean = true;
  EXPECT_EQ(scored().outcome, Outcome::inconclusive);
  verdict_.status = Status::no_divergence;
  EXPECT_EQ(scored().outcome, Outcome::missed) << "a clean bill is another claim";
}

TEST_F(Score, AWrongFaultIsSeenThoughTheOpIsRight) {
  verdict_.defects = {defect("sdpa", "F04:tokens=any", "L = 1")};
  const auto score = scored();
  EXPECT_EQ(score.outcome, Outcome::localised);
  EXPECT_TRUE(score.wrong_fault());
  EXPECT_FALSE(score.explained());
  EXPECT_FALSE(score.proved()) << "a proof of the wrong fault is none";
}

TEST_F(Score, AFaultThatPredictsTheSameIsAsGood) {
  verdict_.defects = {defect("sdpa", "F12:mask=none", "L = 1")};
  truth_.same_as_planted = [](const std::string&, const std::string&) { return true; };
  EXPECT_TRUE(scored().proved());
  EXPECT_FALSE(scored().wrong_fault());
}

TEST_F(Score, NoFaultIsLocalisedAndNoMore) {
  verdict_.status = Status::localised;
  verdict_.defects = {defect("sdpa", "", "L = 1")};
  EXPECT_EQ(scored().outcome, Outcome::localised);
  EXPECT_FALSE(scored().explained());
  EXPECT_FALSE(scored().wrong_fault());
}

TEST_F(Score, SeveralFaultsThatFitAreNoExplanation) {
  verdict_.status = Status::localised;
  verdict_.defects = {defect("sdpa", "", "L = 1")};
  PredictionScore other{.fault = "F12:mask=none", .changed = 1, .elements = 8, .matched = 8};
  verdict_.defects[0].predictions = {other};
  EXPECT_FALSE(scored().named[0].unsettled) << "the planted one is not among them";
  PredictionScore planted{.fault = "F04:tokens=one", .changed = 1, .elements = 8, .matched = 7};
  verdict_.defects[0].predictions = {other, planted};
  EXPECT_FALSE(scored().named[0].unsettled) << "the planted one does not predict all";
  verdict_.defects[0].predictions[1].matched = 8;
  EXPECT_TRUE(scored().named[0].unsettled);
  EXPECT_FALSE(scored().explained());
}

TEST_F(Score, AConditionIsHeldAgainstThePlaces) {
  verdict_.defects = {defect("sdpa", "F04:tokens=one", "always")};
  auto fit = scored().named[0].seen;
  EXPECT_EQ(fit.places.good_covered, 4);
  EXPECT_EQ(fit.calls.good_covered, 2);
  EXPECT_FALSE(fit.calls.exact());
  verdict_.defects = {defect("sdpa", "F04:tokens=one", "L = 1 and head > 0")};
  fit = scored().named[0].seen;
  EXPECT_EQ(fit.places.bad_left_out, 2);
  EXPECT_FALSE(fit.places.exact());
  EXPECT_TRUE(fit.calls.exact()) << "each changed call has a place that it takes in";
  verdict_.defects = {defect("sdpa", "F04:tokens=one", "on Sundays")};
  EXPECT_FALSE(scored().named[0].readable);
}

TEST_F(Score, ANullIsQuietOrAFalseAlarm) {
  make_null();
  EXPECT_EQ(scored().outcome, Outcome::quiet);
  verdict_.orders.emplace_back();
  EXPECT_EQ(scored().outcome, Outcome::false_alarm);
  verdict_.orders.clear();
  verdict_.status = Status::inconclusive;
  EXPECT_EQ(scored().outcome, Outcome::false_alarm) << "it could have been said that nothing is wrong";
  verdict_.status = Status::localised;
  verdict_.defects = {defect("sdpa", "", "always")};
  EXPECT_EQ(scored().outcome, Outcome::false_alarm);
  EXPECT_EQ(scored().why, "localised: sdpa is named");
}

TEST_F(Score, AnEngineFailureAndAnErrorAreFailures) {
  verdict_.status = Status::engine_failure;
  verdict_.reason = "engine-crash: gone";
  EXPECT_EQ(scored().outcome, Outcome::failed);
  EXPECT_EQ(scored().why, "engine_failure: engine-crash: gone");
  const auto of_error = score(drawn_, Error{"model-unsupported", "no such thing", {}, 0});
  EXPECT_EQ(of_error.outcome, Outcome::failed);
  EXPECT_FALSE(is_right(of_error.outcome));
}

TEST_F(Score, SurvivesItsJson) {
  const auto before = to_json(scored());
  const auto read = case_score_from_json(before);
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(to_json(*read), before);
  for (const auto& [key, value] : before.items()) {
    auto lacking = before;
    lacking.erase(key);
    EXPECT_FALSE(case_score_from_json(lacking)) << key;
  }
  auto other = before;
  other["outcome"] = "perfect";
  EXPECT_FALSE(case_score_from_json(other));
}

}  // namespace
}  // namespace culprit
