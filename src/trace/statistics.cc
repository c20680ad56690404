#include "trace/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "num/sum.h"

namespace culprit {
namespace {

/// The square root of the sum of squares of the finite values, none larger than `largest`.
/// Scaling by a power of two is exact and puts the largest value in [1, 2): no square overflows, and one that underflows is below
/// 2^-1021 of the result. The squares are split exactly and summed with compensation, so that the sum is good to one rounding (law 3);
/// halving that in the square root, and rounding there and in value(), gives the bound in the header.
double norm_of(std::span<const double> values, double largest) {
  if (largest == 0) return 0;
  const int exponent = std::ilogb(largest);
  Sum sum;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    const double scaled = std::ldexp(value, -exponent);
    const auto square = two_product(scaled, scaled);
    sum.add(square.value);
    sum.add(square.error);
  }
  return std::ldexp(std::sqrt(sum.value()), exponent);
}

}  // namespace

Statistics statistics_of(const Tensor& tensor) {
  const auto values = tensor.values();
  Statistics statistics;
  statistics.count = static_cast<std::int64_t>(values.size());
  double min = std::numeric_limits<double>::infinity(), max = -min;
  for (const double value : values) {
    if (std::isnan(value)) {
      ++statistics.nans;
    } else if (std::isinf(value)) {
      ++statistics.infinities;
    } else {
      min = std::min(min, value);
      max = std::max(max, value);
    }
  }
  const bool any = min <= max;
  statistics.min = any ? min : std::numeric_limits<double>::quiet_NaN();
  statistics.max = any ? max : std::numeric_limits<double>::quiet_NaN();
  statistics.l2 = any ? norm_of(values, std::max(std::abs(min), std::abs(max))) : 0;
  return statistics;
}

}  // namespace culprit
