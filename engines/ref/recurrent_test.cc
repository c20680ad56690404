// Layers with a recurrent state: however tokens are fed, the same logical values come out, bit for bit.
#include <map>

#include "decode/architecture.h"
#include "engines/ref/test_engine.h"

namespace culprit::ref {
namespace {

class Recurrent : public testing::TestWithParam<std::tuple<const char*, DType>> {
 protected:
  TestEngine engine_{std::get<1>(GetParam()), WeightSource::culprit, nullptr, find_architecture(std::get<0>(GetParam()))->tiny()};

  using Place = std::pair<int, std::int64_t>;  // sequence, position
  /// Values by token, of the last step that fed it; without the padding in front of a row.
  static std::map<Place, std::vector<double>> by_token(const Trace& trace, const std::string& tap) {
    std::map<Place, std::vector<double>> found;
    for (const auto& record : trace.records()) {
      if (record.tap != tap) continue;
      const auto tensor = *trace.tensor(record);
      for (std::int64_t row = 0; row < record.at.rows(); ++row)
        for (std::int64_t token = 0; token < record.at.tokens(); ++token) {
          const auto r = static_cast<std::size_t>(row);
          const auto position = record.at.position[r][static_cast<std::size_t>(token)];
          if (position >= 0)
            found[{record.at.sequence[r], position}] = tensor.sliced(0, row, row + 1).sliced(tensor.rank() - 2, token, token + 1).values();
        }
    }
    return found;
  }
  static void expect_same(const Trace& expected, const Trace& actual) {
    for (const char* tap : {"layers.0.delta_conv", "layers.0.delta_state", "layers.2.delta_out", "layers.3.attn_gated", "logits"}) {
      auto right = by_token(expected, tap);
      for (const auto& [place, values] : by_token(actual, tap)) {
        ASSERT_TRUE(right.contains(place)) << tap << " of " << place.first << " at " << place.second;
        EXPECT_EQ(right[place], values) << tap << " of " << place.first << " at " << place.second;
      }
    }
  }
};

TEST_P(Recurrent, StepsOfAnySizeAgreeWithOnePrefill) {
  const auto whole = engine_.run(three_rows({7}));
  expect_same(whole, engine_.run(three_rows({1, 1, 1, 1, 1, 1, 1})));
  expect_same(whole, engine_.run(three_rows({3, 3, 1})));
  auto again = three_rows({2, 1, 4});
  again.reprefill = true;
  expect_same(whole, engine_.run(again));
  auto each_op = three_rows({2, 1, 4});
  each_op.sync = Sync::each_op;
  expect_same(whole, engine_.run(each_op));
}

TEST_P(Recurrent, TheStateIsOfTheTokensBefore) {
  // Planted: were it not kept, a second step would be as a first one.
  auto fresh = three_rows({4});
  auto continued = three_rows({3, 4});
  for (auto& row : fresh.sequences) row.clear();
  for (std::size_t row = 0; row < 3; ++row)
    fresh.sequences[row].assign(continued.sequences[row].begin() + 3, continued.sequences[row].end());
  for (const char* tap : {"layers.0.delta_conv", "layers.0.delta_state"})
    EXPECT_NE(values_at(engine_.run(fresh), 0, tap), values_at(engine_.run(continued), 1, tap)) << tap;
}

TEST_P(Recurrent, ARowAloneIsTheRowInABatchAndBehindPadding) {
  auto batch = three_rows({3, 1, 1, 1});
  batch.sequences[1].resize(5);
  batch.sequences[2].resize(1);  // its padding is longer than the first step
  const auto together = engine_.run(batch);
  for (std::size_t row = 0; row < 3; ++row) {
    RunPlan alone;
    alone.sequences = {batch.sequences[row]};
    alone.sequence_ids = {static_cast<int>(row)};
    alone.chunks = {static_cast<int>(alone.sequences[0].size())};
    const auto by_itself = engine_.run(alone);
    expect_same(together, by_itself);
  }
}

TEST_P(Recurrent, DraftsThatAreTakenBackChangeNothing) {
  auto plan = three_rows({2, 1, 1, 3});
  const auto plain = engine_.run(plan);
  plan.drafts = {{.step = 0, .tokens = {{5}, {6}, {7}}}, {.step = 1, .tokens = {{90, 3, 4}, {1, 2, 3}, {50, 51, 52}}}};
  const auto drafted = engine_.run(plan);
  for (const int step : {2, 3})
    for (const char* tap : {"layers.0.delta_conv", "layers.0.delta_state", "layers.3.attn", "logits"})
      EXPECT_EQ(values_at(plain, step, tap), values_at(drafted, step, tap)) << tap << " at step " << step;
}

TEST_P(Recurrent, AnExactInterventionIsTheOpItself) {
  auto plan = three_rows({2, 1, 3});
  plan.sequences[1].resize(5);
  const auto plain = engine_.run(plan);
  plan.interventions = {{.kind = Intervention::Kind::exact, .tap = "layers.*.delta_*"}};
  EXPECT_EQ(differing(plain, engine_.run(plan)), std::vector<std::string>{});
}

INSTANTIATE_TEST_SUITE_P(All, Recurrent,
                         testing::Combine(testing::Values("qwen3_5", "qwen3_5_moe"), testing::Values(DType::f32, DType::bf16)),
                         [](const auto& chosen) {
                           return std::string(std::get<0>(chosen.param)) + "_" + std::string(name_of(std::get<1>(chosen.param)));
                         });

}  // namespace
}  // namespace culprit::ref
