// Campaigns on the reference engine: a small one without a miss, the same whatever the number of jobs, and one that goes on where it was cut.
#include "qualify/campaign.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/file.h"
#include "base/test_dir.h"
#include "installed.h"
#include "locate/find.h"
#include "qualify/accuracy.h"
#include "qualify/truth.h"

namespace culprit {
namespace {

class Qualify : public testing::Test {
 protected:
  static CampaignSettings settings(const TestDir& dir, int count, int nulls, int jobs) {
    CampaignSettings settings;
    settings.engine = *installed().engine("ref");
    settings.count = count;
    settings.nulls = nulls;
    settings.jobs = jobs;
    settings.out = dir / "out";
    settings.work = dir / "work";
    return settings;
  }
  static Json without_time(const ScoredCase& scored) {
    auto json = to_json(scored.score);
    json.erase("seconds");
    return json;
  }
  static const ScoredCase* find_case(const Campaign& campaign, const std::string& name) {
    const auto found = std::ranges::find(campaign.cases, name, [](const ScoredCase& one) { return one.score.name; });
    return found == campaign.cases.end() ? nullptr : &*found;
  }
  static std::vector<std::string> lines_of(const std::filesystem::path& file) {
    std::vector<std::string> lines;
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
};

TEST_F(Qualify, ASmallCampaignHasNoMissAndDependsOnNothingButItsSeed) {
  const TestDir dir, other;
  const auto campaign = run_campaign(settings(dir, 12, 4, 2));
  ASSERT_TRUE(campaign) << to_string(campaign.error());
  ASSERT_EQ(campaign->cases.size(), 16u);
  int localised = 0;
  for (const auto& [drawn, score] : campaign->cases) {
    EXPECT_TRUE(is_right(score.outcome)) << describe(drawn) << ": " << name_of(score.outcome) << " " << score.why;
    EXPECT_FALSE(score.wrong_fault()) << describe(drawn);
    for (const auto& named : score.named) {
      EXPECT_TRUE(named.readable) << named.condition;
      EXPECT_EQ(named.seen.places.bad_left_out, 0) << describe(drawn) << ": " << named.condition;
      EXPECT_GT(named.seen.places.bad_covered, 0);
    }
    localised += score.outcome == Outcome::localised;
  }
  EXPECT_GE(localised, 8) << "too few faults changed something for the test to mean anything";

  // A shorter campaign with one job: the same cases with the same results.
  const auto shorter = run_campaign(settings(other, 3, 1, 1));
  ASSERT_TRUE(shorter) << to_string(shorter.error());
  for (const auto& one : shorter->cases) EXPECT_EQ(without_time(one), without_time(*find_case(*campaign, one.score.name)));

  // Cut in the middle of a line, with two cases gone.
  const auto file = dir / "out/cases.jsonl";
  auto lines = lines_of(file);
  ASSERT_EQ(lines.size(), 17u);
  std::string cut;
  for (std::size_t i = 0; i + 2 < lines.size(); ++i) cut += lines[i] + "\n";
  cut += lines[lines.size() - 2].substr(0, 40);
  ASSERT_TRUE(write_file_whole(file, cut));
  int made = 0;
  auto again = settings(dir, 12, 4, 2);
  again.progress = [&](const std::string&) { ++made; };
  const auto resumed = run_campaign(again);
  ASSERT_TRUE(resumed) << to_string(resumed.error());
  EXPECT_EQ(made, 2);
  for (const auto& one : resumed->cases) EXPECT_EQ(without_time(one), without_time(*find_case(*campaign, one.score.name)));
  EXPECT_EQ(lines_of(file).size(), 17u);

  // Another campaign does not mix with it.
  for (const auto change : {0, 1, 2}) {
    auto changed = settings(dir, 12, 4, 2);
    if (change == 0) changed.seed = 2;
    if (change == 1) changed.count = 13;
    if (change == 2) changed.engine.library_sha256 = "another";
    const auto refused = run_campaign(changed);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().id, "campaign-other");
  }
  // A whole line that is no case is not passed over.
  lines = lines_of(file);
  lines[3] = "{}";
  cut.clear();
  for (const auto& line : lines) cut += line + "\n";
  ASSERT_TRUE(write_file_whole(file, cut));
  const auto garbled = run_campaign(settings(dir, 12, 4, 2));
  ASSERT_FALSE(garbled);
  EXPECT_EQ(garbled.error().id, "json-invalid");
  EXPECT_NE(garbled.error().where.find("cases.jsonl:4"), std::string::npos) << garbled.error().where;
}

// The truth is asked of recorded calls; the driver notes by itself which records a fault touched.
TEST_F(Qualify, TheTruthAgreesWithWhatTheDriverNoted) {
  const TestDir dir;
  for (const char* fault : {"F01:content=stale", "F02:operand=v", "F06:content=last", "F12:mask=no_padding", "F19", "F23"}) {
    QualifyCase drawn = *draw_case(1, "1");
    drawn.facts = tiny_llama_facts();
    drawn.dtype = DType::bf16;
    drawn.faults = {*FaultSpec::parse(fault)};
    ASSERT_TRUE(write_case_model(drawn, dir / "model"));
    FindOptions options;
    options.engine = *installed().engine("ref");
    options.model = dir / "model";
    options.model_name = "tiny";
    options.dtype = drawn.dtype;
    options.faults = drawn.faults;
    options.work = dir / "work";
    const auto verdict = find(options);
    ASSERT_TRUE(verdict);
    const auto model = *Model::open(dir / "model");
    std::int64_t noted = 0, asked = 0;
    for (const auto* entry : exploring_entries(verdict->ledger, drawn.faults)) {
      PlantedRuns runs(model, drawn.dtype, drawn.faults);
      const auto trace = std::make_shared<const Trace>(*Trace::open(entry->trace));
      runs.add(entry->plan, trace);
      ASSERT_TRUE(runs.ask_faults());
      const bool has_note = std::ranges::any_of(trace->records(), [](const TapRecord& record) { return !record.note.empty(); });
      EXPECT_EQ(has_note, !runs.broken_ops().empty()) << fault << " in " << entry->plan.name;
      for (const auto& record : trace->records()) noted += record.note == std::string("fault:") + drawn.faults[0].id;
      for (const auto op : runs.broken_ops()) {
        const auto places = runs.places(op);
        std::set<int> calls;
        for (std::size_t i = 0; i < places.all.size(); ++i)
          if (places.all[i].bad) calls.insert(places.calls[i]);
        asked += static_cast<std::int64_t>(calls.size());
      }
    }
    EXPECT_GT(noted, 0) << fault;
    // In a cache what an earlier step broke stays; a later step that breaks nothing more has no note.
    const bool lasts = find_fault(drawn.faults[0].id)->ops.front() == Op::cache_write;
    EXPECT_TRUE(lasts ? asked >= noted : asked == noted) << fault << ": " << asked << " calls, " << noted << " noted";
  }
}

}  // namespace
}  // namespace culprit
