#include "locate/condition.h"

#include <gtest/gtest.h>

#include <functional>

namespace culprit {
namespace {

using testing::Test;

// Every place that the arms of an exploration produce for an op on heads, in a small form.
std::vector<Observation> all_places(const std::function<bool(const Observation&)>& is_bad) {
  std::vector<Observation> out;
  for (const int rank : {3, 4})
    for (const bool scalar : {true, false})
      for (const std::int64_t rows : {1, 3})
        for (const std::int64_t tokens : {1, 2})
          for (const char* role : {"q_rope", "k_rope"})
            for (int layer = 0; layer < 2; ++layer)
              for (int row = 0; row < rows; ++row)
                for (int head = 0; head < 3; ++head)
                  for (int token = 0; token < tokens; ++token) {
                    if (rank == 3 && !scalar) continue;
                    Observation o;
                    o.role = role;
                    o.layer = layer;
                    o.rank = rank;
                    o.offset_scalar = scalar;
                    o.input_contiguous = tokens == 1;
                    o.variant = "fused";
                    o.cache = "concat";
                    o.rows = rows;
                    o.tokens = tokens;
                    o.cached = tokens == 1 ? 2 : 0;
                    o.row = row;
                    o.head = head;
                    o.heads = 3;
                    o.token = token;
                    o.position = 257 + o.cached + token;
                    o.bad = is_bad(o);
                    out.push_back(o);
                  }
  return out;
}

TEST(Condition, NamesTheSingleTokenGridInBothRanks) {
  const auto condition = contrast(all_places([](const Observation& o) { return o.tokens == 1 && o.offset_scalar && o.dim0() > 0; }));
  EXPECT_EQ(condition.text(), "offset has one element and L = 1 and index of dimension 0 > 0");
  EXPECT_EQ(condition.good_covered, 0);
  EXPECT_EQ(condition.roles, (std::vector<std::string>{"k_rope", "q_rope"}));
  ASSERT_EQ(condition.where.size(), 3u);
  EXPECT_EQ(condition.where[0], "rank 3, B = 1: heads 1, 2 of 3, L in {1} (8 of 36 places)");
  EXPECT_EQ(condition.where[2], "rank 4, B = 3: rows 1, 2 of 3, all 3 heads, L in {1} (24 of 216 places)");
}

TEST(Condition, NamesHowManyTokensComeBeforeWhateverThePositionBase) {
  // A window of five: which positions are beyond it depends on where a sequence begins.
  std::vector<Observation> places;
  for (const std::int64_t base : {0, 257})
    for (std::int64_t token = 0; token < 8; ++token) {
      Observation o;
      o.role = "attn";
      o.base = base;
      o.position = base + token;
      o.cached = token;
      o.bad = token >= 5;
      places.push_back(o);
    }
  EXPECT_EQ(contrast(places).text(), "at least 5 tokens before");
  // Seen at one base only, it is still what is meant.
  std::erase_if(places, [](const Observation& o) { return o.base == 0 && o.bad; });
  const auto condition = contrast(places);
  EXPECT_EQ(condition.text(), "at least 5 tokens before");
  EXPECT_EQ(condition.equivalents[0], std::vector<std::string>{"position >= 262"});
}

TEST(Condition, LeavesOutTokensOfPaddingWhateverThePositionBase) {
  // Padding sees only itself: a mask without padding changes the tokens behind it.
  std::vector<Observation> places;
  for (const bool padded : {false, true})
    for (std::int64_t token = 0; token < 4; ++token) {
      Observation o;
      o.role = "attn";
      o.base = 257;
      o.padded = padded;
      o.tokens = 4;
      o.token = static_cast<int>(token);
      o.position = o.base + token - (padded ? 2 : 0);
      o.bad = padded && token >= 2;
      places.push_back(o);
    }
  const auto condition = contrast(places);
  EXPECT_EQ(condition.text(), "token is not padding and row is padded");
  EXPECT_EQ(condition.good_covered, 0);
}

TEST(Condition, NamesTheRole) {
  const auto condition = contrast(all_places([](const Observation& o) { return o.role == "q_rope"; }));
  EXPECT_EQ(condition.text(), "tap q_rope");
}

TEST(Condition, NamesTheLayer) {
  const auto condition = contrast(all_places([](const Observation& o) { return o.layer == 1; }));
  EXPECT_EQ(condition.text(), "layer in {1}");
}

TEST(Condition, SaysWhatTheRunsCannotTellApart) {
  const auto condition = contrast(all_places([](const Observation& o) { return o.tokens == 2; }));
  ASSERT_EQ(condition.predicates.size(), 1u);
  EXPECT_EQ(condition.predicates[0], "input is a strided view");
  EXPECT_EQ(condition.equivalents[0], std::vector<std::string>{"L > 1"});
}

TEST(Condition, NamesARestoreAndTokensThatWereTakenBack) {
  auto places = all_places([](const Observation&) { return false; });
  auto restored = places, taken_back = places;
  for (auto& o : restored) o.restored = o.bad = true;
  for (auto& o : taken_back) o.after_draft = true;
  restored.insert(restored.end(), taken_back.begin(), taken_back.end());
  EXPECT_EQ(contrast(restored).text(), "after the cache was restored");
  for (auto& o : restored) o.bad = o.after_draft;
  EXPECT_EQ(contrast(restored).text(), "after a draft was taken back");
}

TEST(Condition, AlwaysBadNeedsNoPredicate) {
  EXPECT_EQ(contrast(all_places([](const Observation&) { return true; })).text(), "always");
}

TEST(Condition, CountsRightPlacesThatItCannotExclude) {
  // One bad place hides (its value happens to be right): the condition still covers it and says so.
  auto places = all_places([](const Observation& o) { return o.tokens == 1 && o.row > 0 && o.rank == 4; });
  for (auto& o : places)
    if (o.bad) {
      o.bad = false;
      break;
    }
  EXPECT_EQ(contrast(places).good_covered, 1);
}

}  // namespace
}  // namespace culprit
