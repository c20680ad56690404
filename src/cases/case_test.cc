#include "cases/case.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "base/test_dir.h"
#include "cases/play.h"

namespace culprit {
namespace {

Json valid() {
  return Json::parse(R"({"title": "t", "difference": "d",
    "published": {"where": "w", "symptom": "s", "diagnosis": "d", "turn": "t"},
    "setting": {"architecture": "llama", "faults": ["F01"], "suspects": ["cache"]},
    "expected": {"verdict": "proved", "defects": [{"op": "rope", "condition": ["L = 1"]}], "suspects": {"cache": "cleared"},
                 "questions": [{"claim": "c", "runs": {"cache": "padded"}, "answer": "never-run"}]}})");
}

class Cases : public testing::Test {
 protected:
  Result<Case> read(const Json& json) {
    EXPECT_TRUE(write_file_whole(dir_ / "a-case.json", json.dump()));
    return read_case(dir_ / "a-case.json");
  }
  TestDir dir_;
};

TEST_F(Cases, AreReadWhole) {
  const auto a_case = read(valid());
  ASSERT_TRUE(a_case) << to_string(a_case.error());
  EXPECT_EQ(a_case->name, "a-case");
  EXPECT_EQ(a_case->setting.engine, "ref");
  EXPECT_EQ(a_case->expected.defects.at(0).status, "proved");
  EXPECT_EQ(a_case->expected.questions.at(0).answer, "never-run");
}

TEST_F(Cases, MalformedOnesAreNamed) {
  for (const auto* key : {"title", "difference", "published", "setting", "expected"}) {
    auto json = valid();
    json.erase(key);
    EXPECT_EQ(read(json).error().id, "case-invalid") << key;
    json[key] = 7;
    EXPECT_EQ(read(json).error().id, "case-invalid") << key;
    EXPECT_EQ(read(json).error().where, (dir_ / "a-case.json").string());
  }
  auto json = valid();
  json["unknown"] = 1;
  EXPECT_EQ(read(json).error().id, "case-invalid");
  json = valid();
  json["setting"]["model"] = "smollm2";  // and an architecture
  EXPECT_EQ(read(json).error().id, "case-invalid");
  json = valid();
  json["expected"]["defects"][0].erase("op");
  EXPECT_EQ(read(json).error().id, "case-invalid");
  EXPECT_EQ(read_cases(dir_ / "none").error().id, "file-missing");
}

Verdict verdict_as_expected() {
  Verdict verdict;
  verdict.status = Status::proved;
  Defect defect;
  defect.status = Status::proved;
  defect.op = "rope";
  defect.condition = "L = 1 and row > 0";
  verdict.defects.push_back(defect);
  SuspectOutcome suspect;
  suspect.name = "cache";
  suspect.finding = SuspectOutcome::Finding::cleared;
  verdict.suspects.push_back(suspect);
  verdict.ledger.add({});
  return verdict;
}

bool holds(const Expected& expected, const Verdict& verdict) {
  const auto checks = check_verdict(expected, verdict);
  return !checks.empty() && std::ranges::all_of(checks, &Check::holds);
}

// Each way in which a verdict may differ from what a case says is seen.
TEST_F(Cases, ADifferenceOfAnyKindIsSeen) {
  const auto expected = read(valid())->expected;
  ASSERT_TRUE(holds(expected, verdict_as_expected()));
  const auto differs = [&](auto&& change) {
    auto verdict = verdict_as_expected();
    change(verdict);
    return !holds(expected, verdict);
  };
  EXPECT_TRUE(differs([](Verdict& v) { v.status = Status::explained; }));
  EXPECT_TRUE(differs([](Verdict& v) { v.defects.clear(); }));
  EXPECT_TRUE(differs([](Verdict& v) { v.defects.push_back(v.defects[0]); }));
  EXPECT_TRUE(differs([](Verdict& v) { v.defects[0].op = "sdpa"; }));
  EXPECT_TRUE(differs([](Verdict& v) { v.defects[0].status = Status::localised; }));
  EXPECT_TRUE(differs([](Verdict& v) { v.defects[0].condition = "row > 0"; }));
  EXPECT_TRUE(differs([](Verdict& v) { v.suspects.clear(); }));
  EXPECT_TRUE(differs([](Verdict& v) { v.suspects[0].finding = SuspectOutcome::Finding::charged; }));
  EXPECT_TRUE(differs([](Verdict& v) {
    Entry padded;
    padded.plan.cache = "padded";
    v.ledger.add(padded);
  }));
}

}  // namespace
}  // namespace culprit
