#pragma once
// The pieces that all bounds are made of. Nothing here is fitted: each is a theorem's, with its source.
#include <cstdint>

#include "audit/audit.h"
#include "num/dtype.h"

namespace culprit {

/// What one op's arithmetic may add, by its declaration.
struct Units {
  double unit = 0;        // u: one rounding to the op's dtype, relative
  double eta = 0;         // one rounding to the op's dtype, absolute, where the result is subnormal
  double step = 0;        // v: one rounding inside the op, relative; with one of the auditor's own float64 roundings
  double step_eta = 0;    // the same, absolute
  bool in_dtype = false;  // v is u: sums are bounded in probability, since their worst case is vacuous

  /// Relative error of a sum of n products against the sum of their magnitudes: gamma(n, v), or gamma_probable(n, v) when in_dtype.
  [[nodiscard]] double sum(std::int64_t n) const;
};

/// Units of an op with results in `dtype`. Arithmetic inside an op is never narrower than a declaration says, and never narrower than
/// the dtype itself: an engine that declares f32 still adds float64 tensors in float64.
[[nodiscard]] Units units_of(DType dtype, const Arithmetic& arithmetic);
/// The default arithmetic (accumulation in f32, or f64 for f64) where `arithmetic` declares accumulation in the dtype; else as declared.
[[nodiscard]] Arithmetic standard_arithmetic(const Arithmetic& arithmetic);

/// gamma_n = n v / (1 - n v): the worst case of n roundings; +inf when n v >= 1 (Higham, Accuracy and Stability of Numerical Algorithms,
/// 2nd ed., lemma 3.1; a dot product in any order: section 3.1).
[[nodiscard]] double gamma(std::int64_t n, double v);

/// An element may be outside a probable bound with a probability of at most kFailureProbability / kElementsJudged. The union over all
/// elements of one audit then stays below kFailureProbability, and an element's judgement does not depend on what else was audited.
inline constexpr double kFailureProbability = 1e-6;
inline constexpr double kElementsJudged = 0x1p40;
/// lambda with `events` * 2 exp(-lambda^2 / 2) = kFailureProbability / kElementsJudged (Azuma and Hoeffding's inequality, as in Higham and
/// Mary, theorem 2.4).
[[nodiscard]] double lambda_for(double events);
/// exp(lambda sqrt(n) v + n v^2 / (1 - v)) - 1: n roundings that are independent and of mean zero (Higham and Mary, A New Approach to
/// Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41(5), 2019, theorems 2.4 and 3.1: a dot product of n terms is n events).
[[nodiscard]] double gamma_probable(std::int64_t n, double v);

/// (1 + u)^roundings (1 + inner) - 1 without cancellation: the relative error of `roundings` roundings after an error `inner`.
[[nodiscard]] double compounded(int roundings, double u, double inner);
/// The error of a value within `inner` of `exact` after one more rounding to the dtype.
[[nodiscard]] double rounded_once(const Units& units, double exact, double inner);

/// Magnitudes from here on round to infinity: half an ulp beyond the largest finite value (IEEE 754-2019, 4.3.1).
[[nodiscard]] double overflow_threshold(DType dtype);
/// From this exp(-x) on sigmoid(x) may be 0 in place of its value, as less precision: exp overflows the dtype, or sigmoid(x) is below the smallest
/// normal number of f32 (of f64 in f64), in which exp is evaluated, and arithmetic that flushes subnormal numbers loses it.
[[nodiscard]] double sigmoid_vanishes_from(DType dtype);

}  // namespace culprit
