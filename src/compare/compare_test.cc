#include "compare/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "compare/near_tie.h"

namespace culprit {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor random_tensor(DType dtype, const Shape& shape, unsigned seed = 7) {
  std::mt19937 engine(seed);
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (auto& value : values) value = static_cast<double>(engine()) / 0x1p31 - 1;
  return Tensor::from_values(dtype, shape, values);
}

TEST(compare, equal_tensors_have_no_difference) {
  const auto x = random_tensor(DType::bf16, {2, 3, 4, 5});
  const auto difference = compare(x, x.copy());
  ASSERT_TRUE(difference);
  EXPECT_TRUE(difference->equal());
  EXPECT_EQ(difference->all.count, 120);
  EXPECT_EQ(difference->relative_l2, 0);
  EXPECT_NEAR(difference->cosine, 1, 1e-15);
  EXPECT_TRUE(difference->worst.empty());
  EXPECT_EQ(to_string(*difference), "all 120 equal");
}

TEST(compare, shapes_must_agree_and_hold_something) {
  const auto mismatch = compare(Tensor::zeros(DType::f32, {2, 3}), Tensor::zeros(DType::f32, {3, 2}));
  ASSERT_FALSE(mismatch);
  EXPECT_EQ(mismatch.error().id, "tensor-layout");
  const auto nothing = compare(Tensor::zeros(DType::f32, {0, 3}), Tensor::zeros(DType::f32, {0, 3}));
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().id, "cannot-show");
}

TEST(compare, one_outlier_in_a_million_is_found_with_its_place) {
  const auto expected = random_tensor(DType::f32, {10, 10, 100, 100});
  auto actual = expected.copy();
  actual.set({7, 3, 42, 99}, 2.5);
  const auto difference = compare(expected, actual);
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->all.differing(), 1);
  EXPECT_EQ(difference->worst, (std::vector<std::int64_t>{7, 3, 42, 99}));
  EXPECT_EQ(difference->all.error_max, std::abs(2.5 - expected.at({7, 3, 42, 99})));
  EXPECT_EQ(difference->rows[7].counts.differing(), 1);
  EXPECT_EQ(difference->heads[3].counts.differing(), 1);
  EXPECT_EQ(difference->tokens[42].counts.differing(), 1);
  EXPECT_EQ(difference->rows[6].counts.differing() + difference->heads[2].counts.differing() + difference->tokens[41].counts.differing(),
            0);
}

TEST(compare, kinds_of_mismatch_are_told_apart) {
  const std::vector<double> right = {kNan, 1, kInf, kInf, 0, -0.0, 1, kNan, 0};
  const std::vector<double> seen = {kNan, kNan, kInf, -kInf, 0.0, 0.0, -1, 1, 3};
  const auto difference = compare(Tensor::from_values(DType::f64, {9}, right), Tensor::from_values(DType::f64, {9}, seen));
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->all.equal, 4);
  EXPECT_EQ(difference->all.nan_mismatches, 2);
  EXPECT_EQ(difference->all.inf_mismatches, 1);
  EXPECT_EQ(difference->all.zero_mismatches, 1);
  EXPECT_EQ(difference->all.sign_mismatches, 2);
  EXPECT_EQ(difference->all.error_max, kInf);
  EXPECT_EQ(difference->all.error_ulp_max, std::numeric_limits<std::uint64_t>::max());
}

TEST(compare, norms_neither_overflow_nor_vanish) {
  for (const double scale : {1e-320, 1e-200, 1.0, 1e200, 1e307}) {
    const std::vector<double> right = {3 * scale, 4 * scale, 0, 0};
    const std::vector<double> seen = {3 * scale, 4 * scale, 0, 5 * scale};
    const auto difference = compare(Tensor::from_values(DType::f64, {4}, right), Tensor::from_values(DType::f64, {4}, seen));
    ASSERT_TRUE(difference);
    const double tolerance = scale < 1e-300 ? 1e-2 : 4e-16;  // values of few bits
    EXPECT_NEAR(difference->relative_l2, 1, tolerance) << scale;
    EXPECT_NEAR(difference->cosine, std::sqrt(0.5), tolerance) << scale;
  }
}

TEST(compare, square_sums_merge_in_any_grouping) {
  std::mt19937 engine(3);
  SquareSum whole, left, right;
  for (int i = 0; i < 1000; ++i) {
    const double x = std::ldexp(static_cast<double>(engine()), static_cast<int>(engine() % 1000) - 500);
    whole.add(x);
    (i % 3 == 0 ? left : right).add(x);
  }
  left.merge(right);
  EXPECT_DOUBLE_EQ(left.root(), whole.root());
  SquareSum empty;
  empty.merge(left);
  EXPECT_EQ(empty.root(), left.root());
  empty.add(kNan);
  EXPECT_TRUE(std::isnan(empty.root()));
}

TEST(compare, ulp_counts_in_the_narrower_dtype) {
  const auto wide = Tensor::from_values(DType::f32, {1}, std::vector<double>{1.0});
  const auto narrow = Tensor::from_values(DType::bf16, {1}, std::vector<double>{1.0 + 0x1p-7});
  const auto difference = compare(wide, narrow);
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->all.error_ulp_max, 1U);
}

TEST(near_tie, top_two_orders_by_value_then_id_and_skips_nan) {
  const std::vector<double> values = {1, kNan, 5, 2, 5};
  const auto top = top_two(values);
  ASSERT_TRUE(top);
  EXPECT_EQ(top->first, 2);
  EXPECT_EQ(top->second, 4);
  EXPECT_EQ(top->margin, 0);
  EXPECT_FALSE(top_two(std::vector<double>{kNan, kNan}));
  EXPECT_FALSE(top_two(std::vector<double>{}));
  EXPECT_EQ(top_two(std::vector<double>{kNan, 4})->margin, kInf);
}

TEST(near_tie, a_flip_is_a_tie_only_within_the_bounds) {
  const std::vector<double> expected = {0, 1.0, 0.9}, actual = {0, 0.95, 1.0};
  const auto flip = [&](double bound) {
    return argmax_flip(expected, actual, std::vector<double>(3, bound), std::vector<double>(3, bound));
  };
  const auto wide = flip(0.05);
  ASSERT_TRUE(wide && *wide);
  EXPECT_TRUE((*wide)->tie);
  EXPECT_EQ((*wide)->expected_id, 1);
  EXPECT_EQ((*wide)->actual_id, 2);
  EXPECT_NEAR((*wide)->expected_margin, 0.1, 1e-15);
  EXPECT_NEAR((*wide)->actual_margin, 0.05, 1e-15);
  EXPECT_FALSE((*flip(0.03))->tie);  // each margin is within four bounds, but the way from one to the other is not
  EXPECT_FALSE((*flip(kNan))->tie);
  EXPECT_FALSE(*argmax_flip(expected, expected, actual, actual));
  EXPECT_FALSE(argmax_flip(expected, std::vector<double>{1}, actual, actual));
}

}  // namespace
}  // namespace culprit
