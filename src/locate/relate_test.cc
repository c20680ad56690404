#include "locate/relate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/test_dir.h"
#include "trace/trace.h"

namespace culprit {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
using Positions = std::vector<std::vector<double>>;  // [position][logit]

// A trace of one sequence that holds nothing but logits.
std::shared_ptr<const Trace> trace_of(const std::filesystem::path& folder, DType dtype, const Positions& logits) {
  Coordinates at{.sequence = {0}, .position = {{}}, .slot = {{}}};
  std::vector<double> values;
  for (const auto& position : logits) {
    at.position[0].push_back(static_cast<std::int64_t>(at.position[0].size()));
    values.insert(values.end(), position.begin(), position.end());
  }
  const auto tokens = static_cast<std::int64_t>(logits.size()), vocabulary = static_cast<std::int64_t>(logits[0].size());
  auto writer = TraceWriter::create(folder, Json::object()).value();
  writer.add(0, "logits", Tensor::from_values(dtype, {1, tokens, vocabulary}, values), at);
  EXPECT_TRUE(writer.end_step());
  EXPECT_TRUE(writer.finish(Json::object()));
  return std::make_shared<const Trace>(Trace::open(folder).value());
}

Result<RelationOutcome> outcome_of(DType dtype, const Positions& expected, const Positions& actual) {
  TestDir folder;
  Ledger ledger;
  Entry entry;
  entry.plan.chunks = {1};
  Made right{ledger.add(entry), trace_of(folder / "expected", dtype, expected)};
  entry.plan.chunks = {2};
  Made seen{ledger.add(entry), trace_of(folder / "actual", dtype, actual)};
  return relate(ledger, "test", right, {}, seen, {});
}

bool is_tie(DType dtype, const std::vector<double>& expected, const std::vector<double>& actual) {
  const auto outcome = outcome_of(dtype, {expected}, {actual}).value();
  EXPECT_EQ(outcome.flips + outcome.ties, 1);
  return outcome.ties == 1;
}

TEST(Relate, ADecidedFlipIsToldWithItsPlace) {
  const auto outcome = outcome_of(DType::bf16, {{3, 1, 0}, {3, 1, 0}}, {{3, 1, 0}, {1, 2, 0}}).value();
  EXPECT_EQ(outcome.flips, 1);
  EXPECT_EQ(outcome.ties, 0);
  EXPECT_EQ(outcome.first_flip, 1);
  EXPECT_EQ(to_text(outcome), "logits differ by 2 at most over 2 positions; 1 argmax flip, first at position 1 (1 instead of 0, margin 1)");
}

TEST(Relate, AFlipWithinOneRoundingOfTheLogitsIsATie) {
  // Neighbours in bf16: what was 1 + 2^-8 on both sides may have become either. In f32 they are 2^16 ulps apart.
  const std::vector<double> expected = {1 + 0x1p-7, 1}, actual = {1, 1 + 0x1p-7};
  EXPECT_TRUE(is_tie(DType::bf16, expected, actual));
  EXPECT_FALSE(is_tie(DType::f32, expected, actual));
  EXPECT_FALSE(is_tie(DType::bf16, {1 + 0x1p-5, 1}, {1, 1 + 0x1p-5}));
}

TEST(Relate, ASideThatHoldsBothIdsEqualDecidesNothing) {
  const auto outcome = outcome_of(DType::f32, {{5, 5, 0}, {2, 1, 0}}, {{0, 9, 0}, {1, 1, 0}}).value();
  EXPECT_EQ(outcome.flips, 0);
  EXPECT_EQ(outcome.ties, 1);  // at the second position both choose id 0
  EXPECT_FALSE(outcome.first_flip);
  EXPECT_EQ(to_text(outcome), "logits differ by 5 at most over 2 positions; 1 argmax flip within rounding (tie)");
  EXPECT_FALSE(is_tie(DType::f32, {5, 5, 0}, {5, 5, 9}));  // the tied ids are not those of the flip
}

TEST(Relate, NanIsNeverTheLargest) {
  const auto outcome = outcome_of(DType::f32, {{kNan, 4, 1}, {4, 2, 1}}, {{kNan, 4, 1}, {kNan, 2, 1}}).value();
  EXPECT_EQ(outcome.flips, 1);  // at the second position, and decided: nothing is known of a NaN's value
  EXPECT_EQ(outcome.first_flip, 1);
  EXPECT_TRUE(std::isnan(outcome.logits_difference_max));
  EXPECT_FALSE(is_tie(DType::f32, {1, 1}, {kNan, 1}));
}

TEST(Relate, ADistanceOfNanOutlastsLaterNumbers) {
  const auto outcome = outcome_of(DType::f32, {{4, 2}, {4, 2}}, {{4, kNan}, {5, 2}}).value();
  EXPECT_TRUE(std::isnan(outcome.logits_difference_max));
}

TEST(Relate, LogitsThatAreAllNanOnOneSideAreADecidedFlip) {
  const auto outcome = outcome_of(DType::bf16, {{1, 1}, {kNan, kNan}}, {{kNan, kNan}, {kNan, kNan}}).value();
  EXPECT_EQ(outcome.flips, 1);  // both sides of the second position are alike
  EXPECT_EQ(outcome.ties, 0);
  EXPECT_EQ(outcome.first_flip_expected, 0);
  EXPECT_EQ(outcome.first_flip_actual, -1);
  EXPECT_NE(to_text(outcome).find("(no number instead of 0, margin 0)"), std::string::npos) << to_text(outcome);
}

TEST(Relate, AnInfiniteLogitIsNoTie) { EXPECT_FALSE(is_tie(DType::bf16, {kInf, 1}, {1, kInf})); }

TEST(Relate, NumbersOfLogitsMustAgree) {
  const auto outcome = outcome_of(DType::f32, {{1, 2, 3}}, {{1, 2}});
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().id, "tensor-layout");
}

TEST(Relate, DecidedFlipsOutweighDistancesAndNanIsFurthest) {
  const auto outcome = [](int flips, double difference) {
    RelationOutcome made;
    made.flips = flips;
    made.logits_difference_max = difference;
    return made;
  };
  EXPECT_TRUE(further_apart(outcome(1, 1), outcome(0, 9)));
  EXPECT_TRUE(further_apart(outcome(2, 3), outcome(5, 2)));
  EXPECT_TRUE(further_apart(outcome(0, kNan), outcome(0, 9)));
  EXPECT_FALSE(further_apart(outcome(0, 9), outcome(0, kNan)));
  EXPECT_FALSE(further_apart(outcome(0, kNan), outcome(0, kNan)));
  EXPECT_FALSE(further_apart(outcome(1, 2), outcome(1, 2)));
}

}  // namespace
}  // namespace culprit
