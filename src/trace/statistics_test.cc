#include "trace/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace culprit {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Statistics of(std::vector<double> values, DType dtype = DType::f64) {
  return statistics_of(Tensor::from_values(dtype, {static_cast<std::int64_t>(values.size())}, values));
}

TEST(StatisticsTest, CountsWhatIsNotFiniteAndLeavesItOutOfTheRest) {
  const auto statistics = of({kNaN, -3, kInf, 4, -kInf, kNaN, 0});
  EXPECT_EQ(statistics.count, 7);
  EXPECT_EQ(statistics.nans, 2);
  EXPECT_EQ(statistics.infinities, 2);
  EXPECT_EQ(statistics.min, -3);
  EXPECT_EQ(statistics.max, 4);
  EXPECT_EQ(statistics.l2, 5);
}

TEST(StatisticsTest, WithoutFiniteValuesTheExtremesAreNaN) {
  for (const auto& values : {std::vector<double>{}, {kNaN, kInf}}) {
    const auto statistics = of(values);
    EXPECT_TRUE(std::isnan(statistics.min));
    EXPECT_TRUE(std::isnan(statistics.max));
    EXPECT_EQ(statistics.l2, 0);
  }
}

TEST(StatisticsTest, TheNormNeitherOverflowsNorUnderflows) {
  EXPECT_EQ(of({0x3p+1020, -0x4p+1020}).l2, 0x5p+1020);
  EXPECT_EQ(of({0x3p-1074, 0x4p-1074}).l2, 0x5p-1074);
  EXPECT_EQ(of({0x1.fffffffffffffp+1023, 0x1.fffffffffffffp+1023}).l2, kInf);  // the true norm is beyond every double
}

TEST(StatisticsTest, SmallTermsAreNotLostAmongLargeOnes) {
  // 2^20 ones beside 2^30: the norm is sqrt(2^60 + 2^20) = 2^30 sqrt(1 + 2^-40). A plain sum rounds every single one away.
  std::vector<double> values(std::size_t{1} << 20, 1.0);
  values.insert(values.begin(), 0x1p30);
  EXPECT_EQ(of(values).l2, 0x1p30 * (1 + 0x1p-41));
}

TEST(StatisticsTest, StridesAreRespected) {
  const auto tensor = Tensor::from_values(DType::bf16, {2, 2}, std::vector<double>{3, 100, 4, 200}).sliced(1, 0, 1);
  EXPECT_EQ(statistics_of(tensor).l2, 5);
  EXPECT_EQ(statistics_of(tensor).max, 4);
}

}  // namespace
}  // namespace culprit
