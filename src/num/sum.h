#pragma once
// Error-free transformations and compensated sums (Ogita, Rump, Oishi, Accurate Sum and Dot Product, 2005).
#include <cmath>
#include <span>

namespace culprit {

struct TwoTerms {
  double value;
  double error;  // the exact result is value + error
};
/// Knuth's TwoSum: exact for any a, b without overflow.
[[nodiscard]] inline TwoTerms two_sum(double a, double b) {
  const double s = a + b;
  const double t = s - a;
  return {s, (a - (s - t)) + (b - t)};
}
/// Exact unless the product over- or underflows.
[[nodiscard]] inline TwoTerms two_product(double a, double b) {
  const double p = a * b;
  return {p, std::fma(a, b, -p)};
}

/// A running compensated sum (Sum2): error about 2^-106 n^2 of the sum of magnitudes, plus one rounding. Mergeable.
class Sum {
 public:
  void add(double x) {
    const auto t = two_sum(high_, x);
    high_ = t.value;
    low_ += t.error;
  }
  void merge(const Sum& other) {
    add(other.high_);
    low_ += other.low_;
  }
  /// Infinite or NaN as the plain sum would be: the error terms of an overflow are NaN and say nothing.
  [[nodiscard]] double value() const { return std::isfinite(high_) ? high_ + low_ : high_; }

 private:
  double high_ = 0;
  double low_ = 0;
};

/// As if computed in twice the working precision, then rounded (barring underflow of a product). Sizes must agree.
[[nodiscard]] double dot2(std::span<const double> x, std::span<const double> y);

}  // namespace culprit
