#include "decode/delta_ops.h"

#include <gtest/gtest.h>

#include <cmath>

namespace culprit {
namespace {

Array some(Shape shape, double seed) {
  Array array{std::move(shape), {}};
  for (std::int64_t i = 0; i < element_count(array.shape); ++i) array.values.push_back(std::sin(seed + 1.7 * static_cast<double>(i)));
  return array;
}

TEST(CausalConv, SeesItselfAndTheTokensBefore) {
  const Array window{{1, 1, 4, 2}, {1, 10, 2, 20, 3, 30, 4, 40}};
  const auto y = causal_conv(window, std::vector<double>{1, 100, 10000, 2, 0, 0});
  EXPECT_EQ(y.shape, (Shape{1, 1, 2, 2}));
  EXPECT_EQ(y.values, (std::vector<double>{30201, 20, 40302, 40}));
}

/// S_t = g S (I - b k k^T) + b v k^T, the closed form of the rule, in place of its steps.
TEST(DeltaState, IsTheGatedDeltaRule) {
  const std::int64_t tokens = 3, keys = 4, values = 2;
  const auto k = some({1, 1, tokens, keys}, 1), v = some({1, 2, tokens, values}, 2), q = some({1, 1, tokens, keys}, 5);
  Array decay = some({1, tokens, 2}, 3), rate = some({1, tokens, 2}, 4);
  for (auto& g : decay.values) g = std::abs(g);
  const auto state = delta_state(k, v, decay, rate, {}, std::vector<std::uint8_t>(3, 0), DType::f64);
  const auto y = delta_out(q, state);
  EXPECT_EQ(state.shape, (Shape{1, 2, tokens, values * keys}));
  for (std::size_t head = 0; head < 2; ++head) {
    std::vector<std::vector<double>> s(2, std::vector<double>(4, 0.0));
    for (std::size_t t = 0; t < 3; ++t) {
      const double g = decay.values[t * 2 + head], b = rate.values[t * 2 + head];
      const double* key = &k.values[t * 4];
      auto next = s;
      for (std::size_t c = 0; c < 2; ++c)
        for (std::size_t j = 0; j < 4; ++j) {
          next[c][j] = b * v.values[(head * 3 + t) * 2 + c] * key[j];
          for (std::size_t i = 0; i < 4; ++i) next[c][j] += g * s[c][i] * ((i == j ? 1 : 0) - b * key[i] * key[j]);
        }
      s = next;
      for (std::size_t c = 0; c < 2; ++c) {
        double out = 0;
        for (std::size_t j = 0; j < 4; ++j) {
          EXPECT_NEAR(state.values[(head * 3 + t) * 8 + c * 4 + j], s[c][j], 1e-14);
          out += s[c][j] * q.values[t * 4 + j];
        }
        EXPECT_NEAR(y.values[(head * 3 + t) * 2 + c], out, 1e-14);
      }
    }
  }
}

TEST(DeltaState, GoesOnFromAStateAndLeavesPaddingOut) {
  const auto k = some({2, 1, 4, 3}, 1), v = some({2, 1, 4, 2}, 2), decay = some({2, 4, 1}, 3), rate = some({2, 4, 1}, 4);
  const std::vector<std::uint8_t> none(8, 0);
  const auto whole = delta_state(k, v, decay, rate, {}, none, DType::f64);
  // The state before each token gives the same states as the tokens one after the other.
  Array before{whole.shape, std::vector<double>(whole.values.size(), 0.0)};
  for (std::size_t row = 0; row < 2; ++row)
    for (std::size_t i = 6; i < 24; ++i) before.values[row * 24 + i] = whole.values[row * 24 + i - 6];
  EXPECT_EQ(delta_state(k, v, decay, rate, before, none, DType::f64).values, whole.values);
  auto padding = none;
  padding[4] = padding[5] = 1;  // the first two of row 1
  const auto padded = delta_state(k, v, decay, rate, {}, padding, DType::f64);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(padded.values[24 + i], 0);
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(padded.values[i], whole.values[i]);
}

TEST(DeltaDecay, IsStableForLargeArguments) {
  const Array x{{1, 1, 3}, {0, 800, -800}};
  const auto g = delta_decay(x, std::vector<double>{0, 0, 0}, std::vector<double>{0, 0, 0});
  EXPECT_NEAR(g.values[0], 0.5, 1e-15);  // exp(-ln 2)
  EXPECT_EQ(g.values[1], 0);
  EXPECT_EQ(g.values[2], 1);
}

TEST(L2Norm, GivesVectorsOfTheFactorsLength) {
  const auto y = l2_norm(some({2, 3, 4, 5}, 1), 0.5);
  double squares = 0;
  for (std::size_t i = 0; i < 5; ++i) squares += y.values[i] * y.values[i];
  EXPECT_NEAR(std::sqrt(squares), 0.5, 1e-6);
}

}  // namespace
}  // namespace culprit
