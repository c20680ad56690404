#include "num/sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace culprit {
namespace {

__extension__ typedef __int128 Wide;

constexpr double kUnit = 0x1p-53;
double gamma(double n) { return n * kUnit / (1 - n * kUnit); }

std::int64_t random_integer(std::mt19937_64& random, int bits) {
  const auto magnitude = static_cast<std::int64_t>(random() >> (64 - bits));
  return random() % 2 == 0 ? magnitude : -magnitude;
}

TEST(TwoSum, IsExact) {
  std::mt19937_64 random(1);
  int inexact = 0;
  for (int i = 0; i < 200'000; ++i) {
    const int shift = static_cast<int>(random() % 60);
    const auto x = static_cast<double>(random_integer(random, 53));
    const double y = std::ldexp(static_cast<double>(random_integer(random, 53)), shift);
    for (const auto& [value, error] : {two_sum(x, y), two_sum(y, x)}) {
      ASSERT_EQ(value, x + y);
      ASSERT_TRUE(static_cast<Wide>(value) + static_cast<Wide>(error) == static_cast<Wide>(x) + static_cast<Wide>(y)) << x << " + " << y;
      inexact += error != 0;
    }
  }
  EXPECT_GT(inexact, 100'000) << "most of these sums do not fit a double: otherwise the test shows nothing";
}

TEST(TwoProduct, IsExact) {
  std::mt19937_64 random(2);
  int inexact = 0;
  for (int i = 0; i < 200'000; ++i) {
    const auto x = static_cast<double>(random_integer(random, 53));
    const auto y = static_cast<double>(random_integer(random, 53));
    const auto [value, error] = two_product(x, y);
    ASSERT_EQ(value, x * y);
    ASSERT_TRUE(static_cast<Wide>(value) + static_cast<Wide>(error) == static_cast<Wide>(x) * static_cast<Wide>(y)) << x << " * " << y;
    inexact += error != 0;
  }
  EXPECT_GT(inexact, 100'000);
}

/// Values of very unequal size that cancel but for `expected`, an integer below 2^53.
struct Cancelling {
  std::vector<double> values;
  double expected = 0;
  double magnitudes = 0;
};
Cancelling cancelling_values(unsigned seed) {
  std::mt19937_64 random(seed);
  Cancelling result;
  for (int i = 0; i < 500; ++i) {
    const double large = std::ldexp(static_cast<double>(random_integer(random, 53)), static_cast<int>(random() % 20) + 1);
    const double small = static_cast<double>(random_integer(random, 20));
    for (const double value : {large, small, -large}) result.values.push_back(value);
    result.expected += small;
  }
  std::shuffle(result.values.begin(), result.values.end(), random);
  for (const double value : result.values) result.magnitudes += std::fabs(value);
  return result;
}

// Ogita, Rump, Oishi, proposition 4.5: |result - s| <= u |s| + gamma_{n-1}^2 sum |x|.
double sum_bound(const Cancelling& data) {
  const double g = gamma(static_cast<double>(data.values.size()) - 1);
  return kUnit * std::fabs(data.expected) + g * g * data.magnitudes;
}

TEST(Sum, KeepsItsBoundWhereAPlainSumDoesNot) {
  int plain_is_worse = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    const auto data = cancelling_values(seed);
    Sum sum;
    double plain = 0;
    for (const double value : data.values) {
      sum.add(value);
      plain += value;
    }
    EXPECT_LE(std::fabs(sum.value() - data.expected), sum_bound(data)) << seed;
    plain_is_worse += std::fabs(plain - data.expected) > sum_bound(data);
  }
  EXPECT_GT(plain_is_worse, 40);
}

TEST(Sum, MergesPartsWithinTheSameBound) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const auto data = cancelling_values(seed);
    Sum merged;
    for (std::size_t begin = 0; begin < data.values.size(); begin += 97) {
      Sum part;
      for (auto i = begin; i < std::min(begin + 97, data.values.size()); ++i) part.add(data.values[i]);
      merged.merge(part);
    }
    EXPECT_LE(std::fabs(merged.value() - data.expected), sum_bound(data)) << seed;
  }
}

TEST(Sum, RecoversWhatALargeValueHid) {
  Sum sum;
  for (const double value : {1.0, 1e100, 1.0, -1e100}) sum.add(value);
  EXPECT_EQ(sum.value(), 2);
}

TEST(Sum, ShowsOverflowAndNan) {
  const double infinity = std::numeric_limits<double>::infinity();
  Sum infinite;
  for (const double value : {1.0, infinity, 2.0}) infinite.add(value);
  EXPECT_EQ(infinite.value(), infinity);
  Sum overflowed;
  for (int i = 0; i < 3; ++i) overflowed.add(-std::numeric_limits<double>::max());
  EXPECT_EQ(overflowed.value(), -infinity);
  infinite.add(-infinity);
  EXPECT_TRUE(std::isnan(infinite.value()));
  Sum nan;
  nan.add(std::nan(""));
  nan.add(1);
  EXPECT_TRUE(std::isnan(nan.value()));
  EXPECT_EQ(Sum().value(), 0);
}

// Ogita, Rump, Oishi, proposition 5.5: |result - s| <= u |s| + gamma_n^2 sum |x y|. The exact value is an integer of 128 bits.
TEST(Dot2, KeepsItsBoundWhereAPlainDotDoesNot) {
  int plain_is_worse = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<double> x;
    std::vector<double> y;
    for (int i = 0; i < 300; ++i) {  // pairs of products that nearly cancel
      const auto p = random_integer(random, 50);
      const auto q = random_integer(random, 50);
      for (const auto sign : {1, -1}) {
        x.push_back(static_cast<double>(sign * p));
        y.push_back(static_cast<double>(q + (sign < 0 ? random_integer(random, 4) : 0)));
      }
    }
    Wide exact = 0;
    double plain = 0;
    double magnitudes = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      exact += static_cast<Wide>(x[i]) * static_cast<Wide>(y[i]);
      plain += x[i] * y[i];
      magnitudes += std::fabs(x[i] * y[i]);
    }
    const double g = gamma(static_cast<double>(x.size()));
    const double bound = kUnit * std::fabs(static_cast<double>(exact)) + g * g * magnitudes;
    const auto error_of = [&](double actual) {
      const Wide difference = static_cast<Wide>(actual) - exact;
      return static_cast<double>(difference < 0 ? -difference : difference);
    };
    EXPECT_LE(error_of(dot2(x, y)), bound) << seed;
    plain_is_worse += error_of(plain) > bound;
  }
  EXPECT_GT(plain_is_worse, 40);
}

TEST(Dot2, OfNothingIsZeroAndOverflowShows) {
  EXPECT_EQ(dot2({}, {}), 0);
  const std::vector<double> large{1e200, 1.0};
  EXPECT_EQ(dot2(large, large), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace culprit
