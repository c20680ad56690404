// Two schedules of one computation are equal in logical coordinates, and one changed element is found where it is.
#include "compare/trace_diff.h"

#include <gtest/gtest.h>

#include "base/test_dir.h"

namespace culprit {
namespace {

constexpr int kChannels = 2;

/// What the "engine" computes for one token: its sequence and position, coded into the value.
double value_of(int sequence, std::int64_t position, std::int64_t channel) {
  return 1000.0 * sequence + static_cast<double>(position) + 0.25 * static_cast<double>(channel);
}

struct Step {
  std::vector<std::int64_t> positions;
};

struct Writing {
  std::vector<int> sequences = {0, 1};
  std::vector<Step> steps;
  std::int64_t base = 0;  // what to add to each position, with unchanged values
  bool hash_only = false;
  /// Adds to one element of `x`.
  std::optional<std::tuple<int, std::int64_t, double>> damage = {};  // sequence, position, by
  bool extra_tap = false;
};

Trace written(const std::filesystem::path& folder, const Writing& writing) {
  auto writer = TraceWriter::create(folder, Json::object());
  EXPECT_TRUE(writer);
  std::int64_t cached = 0;
  for (int step = 0; step < static_cast<int>(writing.steps.size()); ++step) {
    const auto& positions = writing.steps[static_cast<std::size_t>(step)].positions;
    const auto rows = static_cast<std::int64_t>(writing.sequences.size());
    const auto tokens = static_cast<std::int64_t>(positions.size());
    cached = positions.back() + 1;
    Coordinates at;
    at.sequence = writing.sequences;
    std::vector<std::int64_t> shifted, slots;
    for (const auto position : positions) shifted.push_back(position + writing.base);
    for (std::int64_t slot = 0; slot < cached; ++slot) slots.push_back(slot + writing.base);
    slots.push_back(-1);  // a dead slot, whose content does not count
    at.position.assign(writing.sequences.size(), shifted);
    at.slot.assign(writing.sequences.size(), slots);
    auto x = Tensor::zeros(DType::f32, {rows, tokens, kChannels});
    auto cache = Tensor::zeros(DType::f32, {rows, 1, cached + 1, kChannels});
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t channel = 0; channel < kChannels; ++channel) {
        const int sequence = writing.sequences[static_cast<std::size_t>(row)];
        for (std::int64_t token = 0; token < tokens; ++token) {
          const auto position = positions[static_cast<std::size_t>(token)];
          const bool hit =
              writing.damage && channel == 1 && std::get<0>(*writing.damage) == sequence && std::get<1>(*writing.damage) == position;
          x.set({row, token, channel}, value_of(sequence, position, channel) + (hit ? std::get<2>(*writing.damage) : 0));
        }
        for (std::int64_t slot = 0; slot < cached; ++slot) cache.set({row, 0, slot, channel}, value_of(sequence, slot, channel));
        cache.set({row, 0, cached, channel}, static_cast<double>(step) - 77);
      }
    writer->add(step, "x", x, at, {}, writing.hash_only);
    writer->add(step, "layers.0.k_cache", cache, at, {}, writing.hash_only);
    if (writing.extra_tap) writer->add(step, "extra", x, at);
    EXPECT_TRUE(writer->end_step());
  }
  EXPECT_TRUE(writer->finish(Json::object()));
  auto trace = Trace::open(folder);
  EXPECT_TRUE(trace);
  return *std::move(trace);
}

const std::vector<Step> kOneByOne = {{{0}}, {{1}}, {{2}}};
const std::vector<Step> kAtOnce = {{{0, 1, 2}}};

TEST(TraceDiff, SchedulesAndOrdersOfRowsDoNotMatter) {
  const TestDir dir;
  const auto expected = written(dir.path() / "expected", {.steps = kOneByOne});
  const auto actual = written(dir.path() / "actual", {.sequences = {1, 0}, .steps = kAtOnce});
  const auto difference = compare_traces(expected, actual);
  ASSERT_TRUE(difference) << difference.error().message;
  ASSERT_EQ(difference->taps.size(), 2U);
  EXPECT_TRUE(difference->equal());
  EXPECT_EQ(difference->taps[0].places, 6);  // two sequences, three positions
  EXPECT_EQ(difference->taps[0].counts.count, 6 * kChannels);
  EXPECT_EQ(difference->taps[1].tap, "layers.0.k_cache");
  EXPECT_EQ(difference->taps[1].places, 6);  // dead slots left out
  EXPECT_TRUE(difference->not_compared.empty());
}

TEST(TraceDiff, OneElementIsFoundWhereItIs) {
  const TestDir dir;
  const auto expected = written(dir.path() / "expected", {.steps = kOneByOne});
  const auto actual = written(dir.path() / "actual", {.steps = kAtOnce, .damage = {{1, 2, 0.5}}});
  const auto difference = compare_traces(expected, actual);
  ASSERT_TRUE(difference);
  EXPECT_FALSE(difference->equal());
  const auto& tap = difference->taps[0];
  EXPECT_EQ(tap.differing_places, 1);
  EXPECT_EQ(tap.counts.differing(), 1);
  EXPECT_EQ(tap.counts.error_max, 0.5);
  EXPECT_EQ(tap.first, (TokenKey{1, 2}));
  EXPECT_EQ(tap.worst, (TokenKey{1, 2}));
  EXPECT_EQ(difference->taps[1].differing_places, 0);
}

TEST(TraceDiff, AShiftAlignsOtherBases) {
  const TestDir dir;
  const auto expected = written(dir.path() / "expected", {.steps = kOneByOne});
  const auto actual = written(dir.path() / "actual", {.steps = kOneByOne, .base = 257});
  EXPECT_EQ(compare_traces(expected, actual).error().id, "cannot-show");  // no position in common
  const auto difference = compare_traces(expected, actual, 257);
  ASSERT_TRUE(difference);
  EXPECT_TRUE(difference->equal());
  EXPECT_EQ(difference->taps[0].places, 6);
}

TEST(TraceDiff, WhatCannotBeComparedIsSaid) {
  const TestDir dir;
  const auto expected = written(dir.path() / "expected", {.steps = kOneByOne, .extra_tap = true});
  const auto actual = written(dir.path() / "actual", {.steps = kOneByOne});
  const auto difference = compare_traces(expected, actual);
  ASSERT_TRUE(difference);
  ASSERT_EQ(difference->not_compared.size(), 1U);
  EXPECT_EQ(difference->not_compared[0], "extra: only the expected trace holds it");
  const auto hashes = written(dir.path() / "hashes", {.steps = kOneByOne, .hash_only = true});
  EXPECT_EQ(compare_traces(expected, hashes).error().id, "cannot-show");
}

}  // namespace
}  // namespace culprit
