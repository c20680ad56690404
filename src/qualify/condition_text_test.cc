#include "qualify/condition_text.h"

#include <gtest/gtest.h>

#include "qualify/dice.h"

namespace culprit {
namespace {

Observation random_place(Dice& dice) {
  Observation o;
  o.role = dice.pick<std::string>({"q_rope", "k_rope", "k_cache"});
  o.layer = dice.between(0, 2);
  o.rank = dice.pick({3, 4});
  o.offset_scalar = dice.chance(50);
  o.input_contiguous = dice.chance(50);
  o.cache = dice.pick<std::string>({"concat", "rotating:size=3,keep=1"});
  o.variant = dice.pick<std::string>({"default", "composed"});
  o.rows = dice.between(1, 3);
  o.tokens = dice.between(1, 3);
  o.cached = dice.between(0, 2);
  o.base = dice.pick<std::int64_t>({0, 257});
  o.padded = dice.chance(50);
  o.after_draft = dice.chance(50);
  o.restored = dice.chance(50);
  o.rows_changed = dice.chance(50);
  o.row = dice.between(0, static_cast<int>(o.rows) - 1);
  o.heads = 2;
  o.head = dice.between(0, 1);
  o.token = dice.between(0, static_cast<int>(o.tokens) - 1);
  o.position = o.base + o.cached + o.token - (o.padded ? 2 : 0);
  o.slot = dice.between(0, 3);
  return o;
}

// Whatever contrast says is read here without its code, and takes in as many places as contrast counted.
TEST(ConditionText, IsReadAsContrastMeantIt) {
  using Bad = bool (*)(const Observation&);
  const Bad faults[] = {
      [](const Observation& o) { return o.rows > 1 && o.row > 0; },
      [](const Observation& o) { return o.rows == 1; },
      [](const Observation& o) { return o.tokens == 1 && o.offset_scalar && o.dim0() > 0; },
      [](const Observation& o) { return o.tokens > 1 && !o.offset_scalar; },
      [](const Observation& o) { return o.layer == 1 && o.role == "q_rope"; },
      [](const Observation& o) { return o.layer != 1 && o.role != "q_rope"; },
      [](const Observation& o) { return o.position >= 258; },
      [](const Observation& o) { return o.position - o.base >= 2; },
      [](const Observation& o) { return o.position - o.base >= 1; },
      [](const Observation& o) { return o.position >= o.base && o.padded; },
      [](const Observation& o) { return o.slot >= 2 && o.cached > 0; },
      [](const Observation& o) { return o.cache == "concat" && o.variant == "default"; },
      [](const Observation& o) { return o.cache != "concat" && o.variant != "default"; },
      [](const Observation& o) { return o.rank == 3 && o.head > 0; },
      [](const Observation& o) { return o.rank == 4 && o.row == 0; },
      [](const Observation& o) { return o.padded && o.token > 0; },
      [](const Observation& o) { return o.after_draft && o.base > 0; },
      [](const Observation& o) { return o.restored || o.rows_changed; },
      [](const Observation& o) { return o.restored; },
      [](const Observation& o) { return o.rows_changed && !o.input_contiguous; },
      [](const Observation&) { return true; },
  };
  Dice dice(1);
  for (const auto bad : faults) {
    std::vector<Observation> places;
    for (int i = 0; i < 3000; ++i) {
      places.push_back(random_place(dice));
      places.back().bad = bad(places.back());
    }
    const auto condition = contrast(places);
    const auto test = read_condition(condition.text(), DType::f32);
    ASSERT_TRUE(test) << to_string(test.error());
    std::int64_t good_covered = 0;
    for (const auto& place : places) {
      EXPECT_TRUE(!place.bad || (*test)(place)) << condition.text();
      good_covered += !place.bad && (*test)(place);
    }
    EXPECT_EQ(good_covered, condition.good_covered) << condition.text();
  }
}

TEST(ConditionText, ReadsWhatAScanOfTheOpAdds) {
  const std::string text = "dtype f16 or bf16 and position >= 3 (in bf16) and variant default";
  Observation place;
  place.variant = "default";
  place.position = 3;
  EXPECT_TRUE((*read_condition(text, DType::bf16))(place));
  EXPECT_FALSE((*read_condition(text, DType::f32))(place));
  place.position = 2;
  EXPECT_FALSE((*read_condition(text, DType::bf16))(place));
}

TEST(ConditionText, WhatItDoesNotKnowIsAnError) {
  for (const char* text : {"", "L = 2", "position >= ", "position >= three", "layer in {0", "at least two tokens before",
                           "at least 2 moons", "L = 1 and the moon is full"}) {
    const auto test = read_condition(text, DType::f32);
    ASSERT_FALSE(test) << text;
    EXPECT_EQ(test.error().id, "verdict-invalid");
  }
}

}  // namespace
}  // namespace culprit
