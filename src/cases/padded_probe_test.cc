#include "cases/padded_probe.h"

#include <gtest/gtest.h>

namespace culprit {
namespace {

// What the public thread printed, computed from nothing but the layout.
TEST(PaddedProbe, PredictsThePublishedFigures) {
  const auto keys = read_view({}, Buffer::padded, Reading::linear);
  EXPECT_NEAR(keys.difference_max, 28.159, 1e-6);
  EXPECT_EQ(keys.head_difference_max[0], 0);
  EXPECT_FALSE(keys.head_is_zero[0]);
  EXPECT_TRUE(keys.head_is_zero[1]);
  const auto values = read_view({.prefix_step = 5e-4, .token_begin = 20}, Buffer::padded, Reading::linear);
  EXPECT_NEAR(values.difference_max, 20.127, 1e-6);
  EXPECT_EQ(values.head_difference_max[0], 0);
  EXPECT_TRUE(values.head_is_zero[1]);
  // Flat element 28,272 is head 0, slot 441: padding.
  EXPECT_EQ(keys.last_head, 0);
  EXPECT_EQ(keys.last_slot, 441);
}

TEST(PaddedProbe, ReadByItsStridesTheBufferIsRight) {
  EXPECT_TRUE(read_view({}, Buffer::padded, Reading::strided).agrees());
  EXPECT_EQ(read_view({}, Buffer::padded, Reading::strided).last_slot, 220);
  EXPECT_TRUE(read_view({}, Buffer::dense, Reading::linear).agrees());
  EXPECT_TRUE(read_view({.heads = 1}, Buffer::padded, Reading::linear).agrees()) << "with one head the live slots are dense";
}

TEST(PaddedProbe, IsChargedByControlsThatDifferInOneFactor) {
  const auto verdict = judge_probe({});
  ASSERT_TRUE(verdict) << to_string(verdict.error());
  EXPECT_EQ(verdict->culprit, "probe");
  ASSERT_EQ(verdict->evidence.size(), 2u);
  EXPECT_EQ(verdict->evidence[0].contrasts.at(0).factor, "read");
  EXPECT_EQ(verdict->evidence[1].contrasts.at(0).factor, "heads");
  for (const auto& claim : verdict->evidence) EXPECT_TRUE(claim.holds) << claim.text;
}

// The published control has neither padding nor a view; it differs in the buffer, which is both.
TEST(PaddedProbe, ThePublishedControlIsRefused) {
  const auto verdict = judge_probe({});
  ASSERT_TRUE(verdict);
  ASSERT_EQ(verdict->refused.size(), 1u);
  EXPECT_NE(verdict->refused[0].text.find("confounded"), std::string::npos) << verdict->refused[0].text;
  EXPECT_NE(verdict->refused[0].text.find("padding; view"), std::string::npos) << verdict->refused[0].text;
}

TEST(PaddedProbe, IsNotChargedWhereNothingCanGoWrong) {
  const auto verdict = judge_probe({.heads = 1});
  EXPECT_TRUE(!verdict || verdict->culprit.empty());
}

}  // namespace
}  // namespace culprit
