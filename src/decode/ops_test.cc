#include "decode/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <random>

namespace culprit {
namespace {

constexpr double kUnit = 0x1p-53;

Array random_array(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Array array{shape, std::vector<double>(static_cast<std::size_t>(element_count(shape)))};
  for (auto& value : array.values) value = normal(random);
  return array;
}

/// Element [a, b, c, d] of a rank-4 array.
double at(const Array& x, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  return x.values[static_cast<std::size_t>(((a * x.shape[1] + b) * x.shape[2] + c) * x.shape[3] + d)];
}

/// Rows of `tokens` consecutive positions, after `cached` slots before them.
Coordinates coordinates(std::int64_t rows, std::int64_t tokens, std::int64_t cached = 0) {
  Coordinates result;
  for (std::int64_t row = 0; row < rows; ++row) {
    result.sequence.push_back(static_cast<int>(row));
    auto& position = result.position.emplace_back();
    for (std::int64_t t = 0; t < tokens; ++t) position.push_back(cached + t);
    auto& slot = result.slot.emplace_back();
    for (std::int64_t t = 0; t < cached + tokens; ++t) slot.push_back(t);
  }
  return result;
}

TEST(Embedding, IsALookUp) {
  const auto table = Tensor::from_values(DType::bf16, {3, 2}, std::vector<double>{0, 1, 2, 3, 4, 5});
  const auto actual = embedding(table, {{2, 0}, {1, 1}});
  EXPECT_EQ(actual.shape, (Shape{2, 2, 2}));
  EXPECT_EQ(actual.values, (std::vector<double>{4, 5, 0, 1, 2, 3, 2, 3}));
}

TEST(RmsNorm, OfAConstantIsItsSignTimesTheWeight) {
  const std::vector<double> weight{1, -2, 0.5, 4};
  const Array x{{2, 4}, {3, 3, 3, 3, -5, -5, -5, -5}};
  EXPECT_EQ(rms_norm(x, weight, 0).values, (std::vector<double>{1, -2, 0.5, 4, -1, 2, -0.5, -4}));
  // Epsilon stands under the root: 3 / sqrt(9 + 7) = 3 / 4.
  EXPECT_EQ(rms_norm(x, weight, 7).values[0], 0.75);
  EXPECT_EQ(rms_norm({{1, 4}, {0, 0, 0, 0}}, weight, 1e-5).values, std::vector<double>(4));
  EXPECT_TRUE(std::isnan(rms_norm({{1, 4}, {0, 0, 0, 0}}, weight, 0).values[0]));
}

TEST(RmsNorm, AUnitOffsetIsAddedToTheWeight) {
  const auto x = random_array({2, 6, 3, 8}, 3);
  auto weight = random_array({8}, 4).values;
  const auto offset = rms_norm(x, weight, 1e-6, true);
  for (auto& value : weight) value += 1;
  EXPECT_EQ(offset.values, rms_norm(x, weight, 1e-6).values);
}

TEST(RmsNorm, HasUnitMeanSquare) {
  const auto x = random_array({2, 3, 577}, 1);
  const auto y = rms_norm(x, std::vector<double>(577, 1), 0);
  for (std::size_t row = 0; row < 6; ++row) {
    double squares = 0;
    for (std::size_t i = 0; i < 577; ++i) squares += y.values[row * 577 + i] * y.values[row * 577 + i];
    // Each of two sums of 577 positive terms errs by gamma_577 relative; root, quotient and square by a few units.
    EXPECT_NEAR(squares / 577, 1, 2 * (577 + 6) * kUnit);
  }
}

RopeFacts rope_facts(RopePairing pairing, int dims = 8) {
  RopeFacts facts;
  facts.dims = dims;
  facts.pairing = pairing;
  return facts;
}

class RopePairings : public testing::TestWithParam<RopePairing> {};

TEST_P(RopePairings, PositionZeroIsTheIdentity) {
  const auto x = random_array({2, 3, 1, 8}, 2);
  EXPECT_EQ(rope(x, rope_facts(GetParam()), {{0}, {0}}).values, x.values);
}

TEST_P(RopePairings, RotatesEachPairByItsAngle) {
  const bool half = GetParam() == RopePairing::half;
  const auto x = random_array({2, 2, 3, 10}, 3);
  const std::vector<std::vector<std::int64_t>> position{{5, 6, 7}, {100, 4099, 1 << 20}};
  const auto y = rope(x, rope_facts(GetParam()), position);  // 8 of 10 channels
  for (std::int64_t row = 0; row < 2; ++row) {
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t t = 0; t < 3; ++t) {
        const auto p = position[static_cast<std::size_t>(row)][static_cast<std::size_t>(t)];
        for (std::int64_t i = 0; i < 4; ++i) {
          const auto low = half ? i : 2 * i;
          const auto high = half ? i + 4 : 2 * i + 1;
          const double angle = static_cast<double>(p) * std::pow(10.0, -static_cast<double>(i));  // 10000^(-2i/8)
          const double a = at(x, row, head, t, low);
          const double b = at(x, row, head, t, high);
          // The frequency errs by at most 2 units here and in rope, so does the angle, relative; cos, sin, products and sum by a few more.
          const double bound = (4 * angle + 8) * kUnit * (std::abs(a) + std::abs(b));
          EXPECT_NEAR(at(y, row, head, t, low), a * std::cos(angle) - b * std::sin(angle), bound);
          EXPECT_NEAR(at(y, row, head, t, high), a * std::sin(angle) + b * std::cos(angle), bound);
        }
        for (std::int64_t c = 8; c < 10; ++c) EXPECT_EQ(at(y, row, head, t, c), at(x, row, head, t, c));
      }
    }
  }
}

// <rope(q, p + s), rope(k, t + s)> does not depend on s: what makes a high position base legal.
TEST_P(RopePairings, IsRelative) {
  const auto q = random_array({1, 1, 1, 64}, 4);
  const auto k = random_array({1, 1, 1, 64}, 5);
  const auto facts = rope_facts(GetParam(), 64);
  const auto product = [&](std::int64_t p, std::int64_t t) {
    const auto rq = rope(q, facts, {{p}});
    const auto rk = rope(k, facts, {{t}});
    double sum = 0;
    for (std::size_t i = 0; i < 64; ++i) sum += rq.values[i] * rk.values[i];
    return sum;
  };
  double norms = 0, other = 0;
  for (std::size_t i = 0; i < 64; ++i) norms += q.values[i] * q.values[i], other += k.values[i] * k.values[i];
  const double expected = product(17, 3);
  EXPECT_GT(std::abs(expected - product(17, 4)), 1e-3);  // it does depend on the distance
  for (const std::int64_t shift : {1, 257, 4099, 1 << 20, 2147483000}) {
    // An angle of at most position radians is rounded once, on either side; the rest is a sum of 64 products.
    const double bound = (2 * static_cast<double>(17 + shift) + 64 + 16) * kUnit * std::sqrt(norms * other);
    EXPECT_NEAR(product(17 + shift, 3 + shift), expected, bound) << shift;
  }
}
INSTANTIATE_TEST_SUITE_P(Both, RopePairings, testing::Values(RopePairing::half, RopePairing::interleaved));

TEST(Rope, PairingsAreEachOthersPermutation) {
  const auto x = random_array({1, 2, 3, 8}, 6);
  Array permuted = x;
  for (std::size_t v = 0; v < 6; ++v)
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t part = 0; part < 2; ++part) permuted.values[v * 8 + 2 * i + part] = x.values[v * 8 + i + 4 * part];
  const std::vector<std::vector<std::int64_t>> position{{9, 10, 11}};
  const auto y = rope(x, rope_facts(RopePairing::half), position);
  const auto z = rope(permuted, rope_facts(RopePairing::interleaved), position);
  for (std::size_t v = 0; v < 6; ++v)
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t part = 0; part < 2; ++part) EXPECT_EQ(y.values[v * 8 + i + 4 * part], z.values[v * 8 + 2 * i + part]);
}

TEST(RopeFrequencies, LinearScalingDividesThem) {
  auto facts = rope_facts(RopePairing::half, 64);
  const auto plain = rope_frequencies(facts);
  EXPECT_EQ(plain.size(), 32u);
  EXPECT_EQ(plain[0], 1);
  facts.scaling = RopeScaling::linear;
  facts.factor = 4;
  const auto scaled = rope_frequencies(facts);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(scaled[i], plain[i] / 4);
}

TEST(RopeFrequencies, ProportionalLetsTheLastPairsStandStill) {
  auto facts = rope_facts(RopePairing::half, 64);
  const auto plain = rope_frequencies(facts);
  facts.scaling = RopeScaling::proportional;
  facts.factor = 2;
  facts.rotated = 16;
  const auto actual = rope_frequencies(facts);
  ASSERT_EQ(actual.size(), plain.size());
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(actual[i], i < 8 ? plain[i] / 2 : 0) << i;
  // A still pair passes through at any position; pairs are still (i, i + dims / 2).
  const auto x = random_array({1, 1, 1, 64}, 16);
  const auto y = rope(x, facts, {{4099}});
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(y.values[i] == x.values[i], i % 32 >= 8) << i;
}

// Values of Llama 3.1 8B (base 500000, 128 channels, factor 8), computed with the published wavelength form in another language.
TEST(RopeFrequencies, Llama3IsThePublishedFormula) {
  RopeFacts facts;
  facts.dims = 128;
  facts.base = 500000;
  facts.scaling = RopeScaling::llama3;
  facts.factor = 8;
  const auto actual = rope_frequencies(facts);
  const std::pair<std::size_t, double> expected[] = {{0, 1.0},
                                                     {20, 0.016560440080994446},
                                                     {28, 0.003211445994752591},
                                                     {32, 0.0005248461609929547},
                                                     {36, 7.78465527393245e-05},
                                                     {63, 3.068925988914511e-07}};
  // A dozen roundings, and the smooth part's difference of numbers up to 4 that is then divided by 3.
  for (const auto& [i, value] : expected) EXPECT_NEAR(actual[i], value, 24 * kUnit * value * 8) << i;
  // Continuous at both limits: frequencies stay in falling order.
  for (std::size_t i = 1; i < actual.size(); ++i) EXPECT_LT(actual[i], actual[i - 1]);
}

TEST(Sdpa, OneSlotGivesItsValue) {
  const auto q = random_array({2, 6, 1, 8}, 7);
  const auto k = random_array({2, 3, 1, 8}, 8);
  const auto v = random_array({2, 3, 1, 8}, 9);
  const auto y = sdpa(q, k, v, 0.3, coordinates(2, 1));
  for (std::int64_t row = 0; row < 2; ++row)
    for (std::int64_t head = 0; head < 6; ++head)
      for (std::int64_t c = 0; c < 8; ++c) EXPECT_EQ(at(y, row, head, 0, c), at(v, row, head / 2, 0, c));
}

TEST(Sdpa, EqualKeysGiveTheMeanOfWhatIsSeen) {
  const auto q = random_array({1, 1, 4, 2}, 10);
  const Array k{{1, 1, 4, 2}, {1, 2, 1, 2, 1, 2, 1, 2}};
  const Array v{{1, 1, 4, 1}, {8, 4, 0, -4}};
  EXPECT_EQ(sdpa(q, k, v, 1, coordinates(1, 4)).values, (std::vector<double>{8, 6, 4, 2}));  // causal: 8, (8 + 4) / 2, ..
}

/// Straight from the definition, in long double.
Array naive_sdpa(const Array& q, const Array& k, const Array& v, double scale, const Coordinates& where) {
  Array y{{q.shape[0], q.shape[1], q.shape[2], v.shape[3]}, {}};
  for (std::int64_t row = 0; row < q.shape[0]; ++row)
    for (std::int64_t head = 0; head < q.shape[1]; ++head)
      for (std::int64_t t = 0; t < q.shape[2]; ++t)
        for (std::int64_t c = 0; c < v.shape[3]; ++c) {
          const auto kv = head / (q.shape[1] / k.shape[1]);
          long double above = 0, below = 0;
          for (std::int64_t s = 0; s < k.shape[2]; ++s) {
            const auto r = static_cast<std::size_t>(row);
            const auto slot = where.slot[r][static_cast<std::size_t>(s)];
            if (slot < 0 || slot > where.position[r][static_cast<std::size_t>(t)]) continue;
            long double score = 0;
            for (std::int64_t i = 0; i < q.shape[3]; ++i)
              score += static_cast<long double>(at(q, row, head, t, i)) * static_cast<long double>(at(k, row, kv, s, i));
            const long double weight = std::exp(score * static_cast<long double>(scale));
            above += weight * static_cast<long double>(at(v, row, kv, s, c));
            below += weight;
          }
          y.values.push_back(static_cast<double>(above / below));
        }
  return y;
}

// Unequal rows: row 1 is shorter (left-padded by two dead slots), row 2's cache is in rotated order with a slot of the future.
TEST(Sdpa, IsTheDefinitionForEveryRow) {
  const std::int64_t tokens = 3, slots = 7, channels = 5;
  const auto q = random_array({3, 6, tokens, channels}, 11);
  const auto k = random_array({3, 2, slots, channels}, 12);
  const auto v = random_array({3, 2, slots, channels}, 13);
  Coordinates where;
  where.sequence = {0, 1, 2};
  where.position = {{4, 5, 6}, {2, 3, 4}, {300, 301, 302}};
  where.slot = {{0, 1, 2, 3, 4, 5, 6}, {-1, -1, 0, 1, 2, 3, 4}, {301, 302, 303, 297, 298, 299, 300}};
  const double scale = 1 / std::sqrt(static_cast<double>(channels));
  const auto expected = naive_sdpa(q, k, v, scale, where);
  const auto actual = sdpa(q, k, v, scale, where);
  ASSERT_EQ(actual.shape, (Shape{3, 6, tokens, channels}));
  // Scores of a few units err by gamma_channels of their size, and weights by as much again; the sums by gamma_slots. |v| < 4.
  for (std::size_t i = 0; i < expected.values.size(); ++i)
    EXPECT_NEAR(expected.values[i], actual.values[i], 4 * (8 * 6 * 2 + 7 * 2 + 8) * kUnit);
  // Changing what must not be seen changes nothing.
  auto other_k = k;
  auto other_v = v;
  for (std::int64_t kv = 0; kv < 2; ++kv) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto dead = static_cast<std::size_t>(((1 * 2 + kv) * slots + 1) * channels + c);
      const auto future = static_cast<std::size_t>(((2 * 2 + kv) * slots + 2) * channels + c);
      other_k.values[dead] = other_v.values[dead] = std::nan("");
      other_k.values[future] = other_v.values[future] = 1e300;
    }
  }
  EXPECT_EQ(sdpa(q, other_k, other_v, scale, where).values, actual.values);
}

TEST(Sdpa, AWindowIsTheLastPositionsItselfIncluded) {
  const auto q = random_array({2, 4, 3, 8}, 11), k = random_array({2, 2, 7, 8}, 12), v = random_array({2, 2, 7, 8}, 13);
  const auto at_all = coordinates(2, 3, 4);
  for (const int window : {1, 2, 6}) {
    // Slots outside of a token's window are dead to it: the same as a cache without them.
    const auto actual = sdpa(q, k, v, 0.3, at_all, window);
    for (std::size_t token = 0; token < 3; ++token) {
      auto dead = at_all;
      const auto own = at_all.position[0][token];
      for (auto& row : dead.slot)
        for (auto& slot : row)
          if (slot <= own - window) slot = -1;
      const auto expected = sdpa(q, k, v, 0.3, dead);
      for (std::int64_t row = 0; row < 2; ++row)
        for (std::int64_t head = 0; head < 4; ++head)
          for (std::int64_t c = 0; c < 8; ++c)
            EXPECT_EQ(at(actual, row, head, static_cast<std::int64_t>(token), c),
                      at(expected, row, head, static_cast<std::int64_t>(token), c));
    }
  }
  EXPECT_EQ(sdpa(q, k, v, 0.3, at_all, 7).values, sdpa(q, k, v, 0.3, at_all).values);
  EXPECT_NE(sdpa(q, k, v, 0.3, at_all, 6).values, sdpa(q, k, v, 0.3, at_all).values);
}

TEST(Sdpa, LargeScoresDoNotOverflow) {
  const Array q{{1, 1, 1, 1}, {1000}};
  const Array k{{1, 1, 2, 1}, {1, 2}};
  const Array v{{1, 1, 2, 1}, {5, 7}};
  EXPECT_EQ(sdpa(q, k, v, 1, coordinates(1, 1, 1)).values[0], 7);
}

TEST(Sdpa, APaddingTokenSeesItsOwnSlot) {
  Coordinates where;
  where.sequence = {0};
  where.position = {{255, 256, 257}};
  where.slot = {{-1, -1, -1, 257}};
  EXPECT_EQ(visible_slots(where, 0), (std::vector<std::uint8_t>{0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}));
}

TEST(Sdpa, NothingSeenIsNanAndSoIsANanKey) {
  const Array q{{1, 1, 1, 1}, {1}};
  const Array k{{1, 1, 2, 1}, {1, 2}};
  const Array v{{1, 1, 2, 1}, {5, 7}};
  EXPECT_TRUE(std::isnan(sdpa(q, k, v, 1, std::vector<std::uint8_t>{0, 0}).values[0]));
  EXPECT_TRUE(std::isnan(sdpa(q, {{1, 1, 2, 1}, {std::nan(""), 2}}, v, 1, coordinates(1, 1, 1)).values[0]));
}

TEST(Swiglu, IsGateTimesItsSigmoidTimesUp) {
  const Array gate{{6}, {0, 1, -1, 800, -800, std::nan("")}};
  const Array up{{6}, {3, 2, 2, 2, 2, 2}};
  const auto y = swiglu(gate, up);
  EXPECT_EQ(y.values[0], 0);
  EXPECT_NEAR(y.values[1], 2 / (1 + std::exp(-1.0)), 8 * kUnit);
  EXPECT_NEAR(y.values[1] - y.values[2], 2, 16 * kUnit);  // s(x) + s(-x) = 1
  EXPECT_EQ(y.values[3], 1600);
  EXPECT_EQ(y.values[4], 0);
  EXPECT_TRUE(std::isnan(y.values[5]));
}

TEST(Geglu, IsGeluInItsTanhFormTimesUp) {
  for (const double g : {-30.0, -3.0, -0.5, -1e-9, 0.0, 1e-9, 0.5, 3.0, 30.0}) {
    const long double x = g, k = std::sqrt(2 / std::numbers::pi_v<long double>);
    const auto gelu = static_cast<double>(x / (1 + std::exp(-2 * k * (x + 0.044715L * x * x * x))));
    const double actual = geglu({{1}, {g}}, {{1}, {2}}).values[0];
    // exp's error grows with its argument, which is 2 z < 2 |g| + |g|^3.
    EXPECT_NEAR(actual, 2 * gelu, (16 + 2 * std::abs(g) + std::abs(g * g * g)) * kUnit * std::abs(2 * gelu)) << g;
  }
  // Half way between 0 and the identity at 0, and each of them far out.
  EXPECT_EQ(geglu({{2}, {-100, 100}}, {{2}, {3, 3}}).values, (std::vector<double>{-0.0, 300}));
  EXPECT_NEAR(kGeluScale * kGeluScale * std::numbers::pi, 2, 4 * kUnit);
}

TEST(Softcap, IsTheIdentityNearZeroAndTheCapFarOut) {
  const auto y = softcap({{5}, {-1e6, -1e-9, 0, 15, 1e6}}, 30).values;
  EXPECT_EQ(y[0], -30);
  EXPECT_NEAR(y[1], -1e-9, 4 * kUnit * 1e-9);
  EXPECT_EQ(y[2], 0);
  EXPECT_NEAR(y[3], 30 * std::tanh(0.5), 4 * kUnit * 30);
  EXPECT_EQ(y[4], 30);
}

TEST(Scale, Multiplies) { EXPECT_EQ(scale({{2}, {1, -2}}, 8).values, (std::vector<double>{8, -16})); }

TEST(Add, Adds) { EXPECT_EQ(add({{2}, {1, 2}}, {{2}, {10, 20}}).values, (std::vector<double>{11, 22})); }

TEST(Heads, SplitAndMergeAreInverse) {
  const auto x = random_array({2, 3, 12}, 14);
  const auto split = split_heads(x, 4);
  EXPECT_EQ(split.shape, (Shape{2, 4, 3, 3}));
  EXPECT_EQ(at(split, 1, 2, 0, 1), x.values[1 * 36 + 0 * 12 + 2 * 3 + 1]);
  const auto merged = merge_heads(split);
  EXPECT_EQ(merged.shape, x.shape);
  EXPECT_EQ(merged.values, x.values);
}

TEST(Heads, OneIsSelected) {
  const auto x = random_array({2, 4, 3, 5}, 17);
  const auto y = select_head(x, 2);
  EXPECT_EQ(y.shape, (Shape{2, 3, 5}));
  for (std::int64_t row = 0; row < 2; ++row)
    for (std::int64_t token = 0; token < 3; ++token)
      for (std::int64_t c = 0; c < 5; ++c)
        EXPECT_EQ(y.values[static_cast<std::size_t>((row * 3 + token) * 5 + c)], at(x, row, 2, token, c));
}

TEST(Arrays, GoToTensorsAndBack) {
  const auto x = random_array({2, 3}, 15);
  EXPECT_EQ(to_array(to_tensor(x, DType::f64)).values, x.values);
  EXPECT_EQ(to_array(to_tensor(x, DType::f64).transposed(0, 1)).shape, (Shape{3, 2}));
  EXPECT_EQ(to_array(to_tensor(x, DType::f64).transposed(0, 1)).values[1], x.values[3]);
}

}  // namespace
}  // namespace culprit
