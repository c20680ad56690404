#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/pool.h"
#include "decode/linear_kernel.h"
#include "decode/ops.h"
#include "num/sum.h"

namespace culprit {
namespace {

constexpr DType kFloats[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

std::vector<double> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (auto& value : values) value = normal(random);
  return values;
}

struct Outputs {
  std::vector<double> out;
  std::vector<double> magnitude;
};
Outputs run(const std::vector<double>& x, std::int64_t n, const Tensor& weight) {
  const auto count = static_cast<std::size_t>(n * weight.dim(0));
  Outputs result{std::vector<double>(count), std::vector<double>(count)};
  linear(x, n, weight, result.out, result.magnitude);
  std::vector<double> alone(count);
  linear(x, n, weight, alone);
  for (std::size_t i = 0; i < count; ++i)
    EXPECT_TRUE(alone[i] == result.out[i] || (std::isnan(alone[i]) && std::isnan(result.out[i])))
        << "the magnitude must not change the sums";
  return result;
}

// Small integers: every order of additions gives the same exact answer, whatever the shape's remainders.
TEST(Linear, IsExactOnSmallIntegers) {
  std::mt19937 random(1);
  for (const DType dtype : kFloats) {
    for (const std::int64_t in : {1, 3, 4, 5, 8, 48, 97}) {
      for (const std::int64_t out : {1, 2, 3, 4, 5, 31, 33, 130}) {
        for (const std::int64_t n : {1, 2, 3, 7}) {
          std::vector<double> x, w;
          for (std::int64_t i = 0; i < n * in; ++i) x.push_back(static_cast<double>(random() % 17) - 8);
          for (std::int64_t i = 0; i < out * in; ++i) w.push_back(static_cast<double>(random() % 17) - 8);
          const auto actual = run(x, n, Tensor::from_values(dtype, {out, in}, w));
          for (std::int64_t r = 0; r < n; ++r) {
            for (std::int64_t j = 0; j < out; ++j) {
              double sum = 0, magnitude = 0;
              for (std::int64_t i = 0; i < in; ++i) {
                const double product = x[static_cast<std::size_t>(r * in + i)] * w[static_cast<std::size_t>(j * in + i)];
                sum += product;
                magnitude += std::abs(product);
              }
              ASSERT_EQ(sum, actual.out[static_cast<std::size_t>(r * out + j)]);
              ASSERT_EQ(magnitude, actual.magnitude[static_cast<std::size_t>(r * out + j)]);
            }
          }
        }
      }
    }
  }
}

// |error| <= gamma_n sum |x_i w_i| for any order of additions (Higham, Accuracy and Stability, 2nd ed., 3.1), against 2^-106 arithmetic.
TEST(Linear, ErrsByNoMoreThanDoubleArithmetic) {
  const std::int64_t n = 5, in = 577, out = 37;
  const auto x = random_values(static_cast<std::size_t>(n * in), 2);
  const double gamma =
      static_cast<double>(in) * rounding_of(DType::f64).unit / (1 - static_cast<double>(in) * rounding_of(DType::f64).unit);
  for (const DType dtype : kFloats) {
    const auto weight = Tensor::from_values(dtype, {out, in}, random_values(static_cast<std::size_t>(out * in), 3));
    const auto w = weight.values();
    const auto actual = run(x, n, weight);
    for (std::int64_t r = 0; r < n; ++r) {
      for (std::int64_t j = 0; j < out; ++j) {
        const auto at = static_cast<std::size_t>(r * out + j);
        const double expected = dot2(std::span(x).subspan(static_cast<std::size_t>(r * in), static_cast<std::size_t>(in)),
                                     std::span(w).subspan(static_cast<std::size_t>(j * in), static_cast<std::size_t>(in)));
        EXPECT_LE(std::abs(actual.out[at] - expected), gamma * actual.magnitude[at]);
      }
    }
  }
}

// Bit for bit: an input gives the same outputs alone and among others, so a prefill and single steps can be compared exactly.
TEST(Linear, DoesNotDependOnNeighboursOrThreads) {
  const std::int64_t n = 7, in = 83, out = 201;
  const auto x = random_values(static_cast<std::size_t>(n * in), 4);
  const auto weight = Tensor::from_values(DType::bf16, {out, in}, random_values(static_cast<std::size_t>(out * in), 5));
  const auto together = run(x, n, weight);
  for (std::int64_t r = 0; r < n; ++r) {
    const std::vector<double> row(x.begin() + r * in, x.begin() + (r + 1) * in);
    const auto alone = run(row, 1, weight);
    EXPECT_TRUE(std::equal(alone.out.begin(), alone.out.end(), together.out.begin() + r * out));
    EXPECT_TRUE(std::equal(alone.magnitude.begin(), alone.magnitude.end(), together.magnitude.begin() + r * out));
  }
  Outputs inline_run;  // a loop inside a loop runs on one thread
  parallel_for(2, 1, [&](std::size_t begin, std::size_t) {
    if (begin == 0) inline_run = run(x, n, weight);
  });
  EXPECT_EQ(together.out, inline_run.out);
  EXPECT_EQ(together.magnitude, inline_run.magnitude);
}

TEST(Linear, EveryKernelGivesTheSameBits) {
  for (const std::size_t in : {1u, 4u, 63u, 64u, 577u}) {
    for (std::size_t rows = 1; rows <= kLinearRows; ++rows) {
      const std::size_t n = 5;
      const auto x = random_values(n * in, 6);
      const auto w = random_values(rows * in, 7);
      std::vector<double> expected(2 * n * rows), actual(2 * n * rows);
      const auto block = [&](std::vector<double>& result) {
        return LinearBlock{.x = x.data(),
                           .weight = w.data(),
                           .out = result.data(),
                           .magnitude = result.data() + n * rows,
                           .n = n,
                           .in = in,
                           .weight_rows = rows,
                           .out_stride = rows};
      };
      linear_kernel_baseline()(block(expected));
      linear_kernel()(block(actual));
      EXPECT_EQ(expected, actual) << in << " x " << rows;
    }
  }
}

TEST(Linear, CarriesNanAndInfinity) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto weight = Tensor::from_values(DType::f32, {2, 3}, std::vector<double>{1, 0, 1, 1, 2, 1});
  const auto actual = run({1, inf, 2, std::nan(""), 0, 0}, 2, weight);
  EXPECT_TRUE(std::isnan(actual.out[0]));  // infinity times 0
  EXPECT_EQ(actual.out[1], inf);
  EXPECT_TRUE(std::isnan(actual.out[2]) && std::isnan(actual.out[3]) && std::isnan(actual.magnitude[3]));
}

}  // namespace
}  // namespace culprit
