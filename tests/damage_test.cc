// The damage that `find` reports, held against a plain second computation from the two traces on disk, with F01 of every content.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/test_dir.h"
#include "decode/architecture.h"
#include "decode/model.h"
#include "installed.h"
#include "locate/find.h"
#include "report/text.h"

namespace culprit {
namespace {

class DamageReport : public testing::Test {
 protected:
  Verdict find_with(const std::vector<std::string>& faults) {
    EXPECT_TRUE(write_random_model(dir_.path() / "model", {.facts = find_architecture(architecture_)->tiny(), .seed = 1}));
    FindOptions options;
    options.engine = *installed().engine("ref");
    options.model = dir_.path() / "model";
    options.model_name = "tiny";
    options.proof_arm = proof_arm_;
    options.work = dir_.path() / "work";
    for (const auto& fault : faults) options.faults.push_back(*FaultSpec::parse(fault));
    auto verdict = find(options);
    EXPECT_TRUE(verdict) << to_string(verdict.error());
    return *std::move(verdict);
  }
  Trace trace_of(const Verdict& verdict, int entry) const { return *Trace::open((*verdict.ledger.entry(entry))->trace); }
  std::string_view architecture_ = "llama";
  std::string proof_arm_;
  TestDir dir_;
};

struct Naive {
  double error = 0, right = 0, bad = 0, max = 0;
  std::int64_t elements = 0, differing = 0;
  [[nodiscard]] double relative() const { return error == 0 ? 0 : std::sqrt(error / right); }
};

/// By tap: plain sums of squares over each row from the first position on at which its own tap is off by more than rounding, at a step
/// that was already made.
std::map<std::string, Naive> naive_norms(const Trace& right, const Trace& bad, const std::string& own) {
  std::map<std::string, Naive> sums;
  std::map<std::int64_t, std::vector<std::pair<int, std::int64_t>>> struck;  // by row: step and position
  const auto each = [&](const TapRecord& record, const auto& use) {
    const auto x = *right.tensor(record), y = *bad.tensor(*bad.find(record.step, record.tap));
    const auto values = x.values(), others = y.values();
    const auto tokens = x.dim(-2), channels = x.dim(-1), per_row = x.count() / x.dim(0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto index = static_cast<std::int64_t>(i), row = index / per_row;
      const auto& all = record.tap.ends_with("_cache") ? record.at.slot : record.at.position;
      use(row, all[static_cast<std::size_t>(row)][static_cast<std::size_t>(index / channels % tokens)], values[i], others[i]);
    }
  };
  for (const auto& record : right.records())
    if (record.tap == own)
      each(record, [&](std::int64_t row, std::int64_t position, double expected, double actual) {
        if (!(std::abs(expected - actual) <= 1e-4)) struck[row].emplace_back(record.step, position);
      });
  for (const auto& record : right.records())
    each(record, [&](std::int64_t row, std::int64_t position, double expected, double actual) {
      if (std::ranges::none_of(struck[row], [&](const auto& at) { return at.first <= record.step && at.second <= position; })) return;
      auto& sum = sums[record.tap];
      ++sum.elements;
      sum.right += expected * expected;
      sum.bad += actual * actual;
      if (expected == actual || (std::isnan(expected) && std::isnan(actual))) return;
      ++sum.differing;
      const double error = std::abs(actual - expected);
      sum.error += error * error;
      if (std::isnan(error) || error > sum.max) sum.max = error;
    });
  return sums;
}

void expect_near(double expected, double actual, const std::string& tap) {
  if (std::isnan(expected))
    EXPECT_TRUE(std::isnan(actual)) << tap;
  else
    EXPECT_NEAR(expected, actual, 1e-12 * expected) << tap;  // two orders of summing a few thousand squares in float64
}

class DamageOfContent : public DamageReport, public testing::WithParamInterface<const char*> {};

TEST_P(DamageOfContent, IsThatOfTheTwoTraces) {
  const std::string content = GetParam();
  const auto verdict = find_with({"F01:content=" + content});
  ASSERT_EQ(verdict.status, Status::proved) << to_text(verdict);
  ASSERT_TRUE(verdict.defects[0].damage);
  const auto& damage = *verdict.defects[0].damage;
  EXPECT_TRUE(damage.repeatable);
  ASSERT_EQ(damage.entries.size(), 3u);
  const auto right = trace_of(verdict, damage.entries[0]), bad = trace_of(verdict, damage.entries[2]);
  const auto sums = naive_norms(right, bad, damage.reference_tap);

  bool before = true;
  const auto own = std::ranges::find(damage.taps, damage.reference_tap, &TapDamage::tap);
  ASSERT_NE(own, damage.taps.end());
  for (const auto& tap : damage.taps) {
    const auto found = sums.find(tap.tap);
    ASSERT_NE(found, sums.end()) << tap.tap;
    const auto& naive = found->second;
    EXPECT_EQ(tap.elements, naive.elements) << tap.tap;
    EXPECT_EQ(tap.differing, naive.differing) << tap.tap;
    expect_near(naive.relative(), tap.relative_l2, tap.tap);
    expect_near(naive.max, tap.error_max, tap.tap);
    expect_near(std::sqrt(naive.bad / naive.right), tap.norm_ratio, tap.tap);
    expect_near(naive.relative() / sums.at(damage.reference_tap).relative(), tap.share, tap.tap);
    EXPECT_EQ(tap.noise_relative_l2, 0) << tap.tap;
    before = before && !tap.behind;
    if (before) {
      EXPECT_EQ(tap.relative_l2, 0) << tap.tap;
    }
    if (tap.own || tap.tap == "logits") {
      EXPECT_TRUE(std::isnan(tap.relative_l2) || tap.relative_l2 > 0) << tap.tap;
    }
    if (content == "nan" && (tap.own || tap.tap == "logits")) {
      EXPECT_TRUE(std::isnan(tap.relative_l2)) << tap.tap;
    }
    if (content != "nan") {
      EXPECT_TRUE(std::isfinite(tap.relative_l2)) << tap.tap;
    }
  }
  if (content == "zero") {
    EXPECT_EQ(own->relative_l2, 1);  // what was written over is lost, no more
  }
  EXPECT_GT(damage.positions, 0);
  const auto json = to_json(verdict).at("defects").at(0).at("damage");
  EXPECT_EQ(json.at("taps").size(), damage.taps.size());
  if (content == "nan") {
    EXPECT_EQ(json.at("taps").back().at("relative_l2"), "nan");
  }
  EXPECT_NE(to_text(verdict).find("argmax flips: "), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(F01, DamageOfContent, testing::Values("zero", "stale", "input", "nan"),
                         [](const auto& content) { return std::string(content.param); });

TEST_F(DamageReport, WithoutADefectThereIsNone) {
  const auto verdict = find_with({});
  ASSERT_EQ(verdict.status, Status::no_divergence) << to_text(verdict);
  EXPECT_EQ(to_text(verdict).find("  damage "), std::string::npos);
  EXPECT_EQ(to_json(verdict).dump().find("\"damage\""), std::string::npos);
}

TEST_F(DamageReport, ATapBesideTheDefectShowsNothingInItsLayer) {
  const auto verdict = find_with({"F01:content=input"});
  const auto& damage = *verdict.defects.at(0).damage;
  const auto beside = std::ranges::find(damage.taps, "layers.0.v_cache", &TapDamage::tap);
  ASSERT_NE(beside, damage.taps.end());
  EXPECT_FALSE(beside->behind);
  EXPECT_EQ(beside->differing, 0);
}

TEST_F(DamageReport, IsMeasuredForCachesToo) {
  const auto verdict = find_with({"F06:content=zero"});
  ASSERT_EQ(verdict.status, Status::proved) << to_text(verdict);
  const auto& damage = *verdict.defects[0].damage;
  EXPECT_TRUE(damage.reference_tap.ends_with("_cache"));
  const auto own = std::ranges::find(damage.taps, damage.reference_tap, &TapDamage::tap);
  EXPECT_EQ(own->share, 1);
  EXPECT_GT(own->relative_l2, 0);
}

TEST_F(DamageReport, EveryArchitectureHasOne) {
  proof_arm_ = "batch";
  for (const auto* architecture : architectures()) {
    architecture_ = architecture->name;
    const auto verdict = find_with({"F01:content=zero"});
    ASSERT_EQ(verdict.status, Status::proved) << to_text(verdict);
    ASSERT_TRUE(verdict.defects[0].damage) << architecture->name;
    EXPECT_GT(verdict.defects[0].damage->taps.back().relative_l2, 0);
    EXPECT_EQ(verdict.defects[0].damage->arm, "batch");
  }
}

TEST_F(DamageReport, TheArmThatIsAskedForGivesWayWhereItDoesNotShowTheDefect) {
  proof_arm_ = "prefill";  // more than one token
  const auto verdict = find_with({"F01:content=zero"});
  ASSERT_EQ(verdict.status, Status::proved) << to_text(verdict);
  EXPECT_NE(verdict.defects[0].damage->arm, "prefill");
}

// Rotating fewer channels than a head has copies the input first, so that no content of the buffer is left to see.
TEST_F(DamageReport, AParameterThatMeansNothingIsNotToldApart) {
  architecture_ = "qwen3_5";
  for (const char* fault : {"F01:content=nan", "F01"}) {
    const auto verdict = find_with({fault});
    ASSERT_EQ(verdict.status, Status::proved) << to_text(verdict);
    EXPECT_EQ(verdict.defects[0].fault, "F01:content=input");
    EXPECT_NE(verdict.defects[0].mechanism.find("in this model the same as F01:content=zero, F01:content=stale, F01:content=nan"),
              std::string::npos)
        << verdict.defects[0].mechanism;
  }
}

}  // namespace
}  // namespace culprit
