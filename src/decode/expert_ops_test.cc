#include "decode/expert_ops.h"

#include <gtest/gtest.h>

#include <cmath>

namespace culprit {
namespace {

TEST(Route, KeepsTheLargestSharesAndNormalisesThem) {
  const Array scores{{1, 2, 4}, {0, std::log(2.0), std::log(5.0), 0, 1, 1, 1, 1}};
  const auto shares = route(scores, 2, false);
  EXPECT_NEAR(shares.values[1], 2.0 / 9, 1e-15);
  EXPECT_NEAR(shares.values[2], 5.0 / 9, 1e-15);
  EXPECT_EQ(shares.values[0], 0);
  EXPECT_EQ(shares.values[3], 0);
  const auto weights = route(scores, 2, true);
  EXPECT_NEAR(weights.values[1], 2.0 / 7, 1e-15);
  EXPECT_NEAR(weights.values[2], 5.0 / 7, 1e-15);
  // Among equals the lower numbers.
  EXPECT_EQ((std::vector<double>(weights.values.begin() + 4, weights.values.end())), (std::vector<double>{0.5, 0.5, 0, 0}));
}

TEST(ChosenExperts, AreThoseThatCountAndThenTheFirstOfTheRest) {
  using Numbers = std::vector<std::size_t>;
  EXPECT_EQ(chosen_experts(std::vector<double>{0, 0.25, 0, 0.75}, 2), (Numbers{1, 3}));
  EXPECT_EQ(chosen_experts(std::vector<double>{0, 0, 0, 1}, 2), (Numbers{0, 3}));
  EXPECT_EQ(chosen_experts(std::vector<double>{0, std::nan(""), 0, 1}, 2), (Numbers{0, 3}));
  EXPECT_EQ(chosen_experts(std::vector<double>{0.5, 0.2, 0.3}, 2), (Numbers{0, 1}));  // more than the engine may choose: the first
}

/// Each token's output by the book: sum over its experts of weight * (W_expert x).
TEST(ExpertLinearAndSum, AreTheWeightedSumOfEachTokensExperts) {
  const std::int64_t rows = 2, tokens = 3, in = 4, out = 5, experts = 3;
  const auto some = [](std::int64_t i) { return std::sin(static_cast<double>(3 * i + 1)); };
  Array x{{rows, tokens, in}, {}}, scores{{rows, tokens, experts}, {}};
  for (std::int64_t i = 0; i < rows * tokens * in; ++i) x.values.push_back(some(i));
  for (std::int64_t i = 0; i < rows * tokens * experts; ++i) scores.values.push_back(some(i + 100));
  std::vector<double> weight;
  for (std::int64_t i = 0; i < experts * out * in; ++i) weight.push_back(some(i + 200));
  const auto tensor = Tensor::from_values(DType::f64, {experts, out, in}, weight);
  const auto weights = route(scores, 2, true);
  const auto each = expert_linear(x, weights, tensor, 2);
  EXPECT_EQ(each.shape, (Shape{rows, 2, tokens, out}));
  const auto again = expert_linear(each, weights, Tensor::from_values(DType::f64, {experts, 1, out}, std::vector<double>(15, 1.0)), 2);
  const auto sum = expert_sum(each, weights, 2);
  for (std::int64_t token = 0; token < rows * tokens; ++token)
    for (std::int64_t j = 0; j < out; ++j) {
      double expected = 0;
      for (std::int64_t e = 0; e < experts; ++e)
        for (std::int64_t i = 0; i < in; ++i)
          expected += weights.values[static_cast<std::size_t>(token * experts + e)] *
                      weight[static_cast<std::size_t>((e * out + j) * in + i)] * x.values[static_cast<std::size_t>(token * in + i)];
      EXPECT_NEAR(sum.values[static_cast<std::size_t>(token * out + j)], expected, 1e-14);
    }
  // Inputs that have a place for each choice are taken by it.
  double first = 0;
  for (std::int64_t j = 0; j < out; ++j) first += each.values[static_cast<std::size_t>(j)];
  EXPECT_NEAR(again.values[0], first, 1e-14);
}

}  // namespace
}  // namespace culprit
