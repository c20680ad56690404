#include "audit/bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace culprit {

double gamma(std::int64_t n, double v) {
  const double nv = static_cast<double>(n) * v;
  return nv < 1 ? nv / (1 - nv) : std::numeric_limits<double>::infinity();
}

double lambda_for(double events) { return std::sqrt(2 * std::log(2 * events * kElementsJudged / kFailureProbability)); }

double gamma_probable(std::int64_t n, double v) {
  const auto terms = static_cast<double>(n);
  // Theorem 2.4 has exp(-lambda^2 (1 - v)^2 / 2): a larger lambda restores the probability.
  const double lambda = lambda_for(terms) / (1 - v);
  return std::expm1(lambda * std::sqrt(terms) * v + terms * v * v / (1 - v));
}

double Units::sum(std::int64_t n) const { return in_dtype ? gamma_probable(n, step) : gamma(n, step); }

Units units_of(DType dtype, const Arithmetic& arithmetic) {
  constexpr double own = 0x1p-53;  // of the auditor's own arithmetic
  const auto of_dtype = rounding_of(dtype);
  auto inside = arithmetic.in_dtype ? of_dtype : rounding_of(arithmetic.accumulate);
  if (of_dtype.unit < inside.unit) inside = of_dtype;
  return {.unit = of_dtype.unit,
          .eta = of_dtype.half_subnormal,
          .step = inside.unit + own,
          .step_eta = inside.half_subnormal,
          .in_dtype = arithmetic.in_dtype && of_dtype.unit > rounding_of(DType::f32).unit};
}

Arithmetic standard_arithmetic(const Arithmetic& arithmetic) { return arithmetic.in_dtype ? Arithmetic{} : arithmetic; }

double compounded(int roundings, double u, double inner) { return std::expm1(roundings * std::log1p(u) + std::log1p(inner)); }

double rounded_once(const Units& units, double exact, double inner) { return inner + units.unit * (std::abs(exact) + inner) + units.eta; }

double overflow_threshold(DType dtype) {
  // largest = 2^e (2 - 2u) and half its ulp is 2^e u.
  const auto rounding = rounding_of(dtype);
  return rounding.largest * (1 + rounding.unit / (2 - 2 * rounding.unit));
}

double sigmoid_vanishes_from(DType dtype) {
  const double smallest_normal = dtype == DType::f64 ? 0x1p-1022 : 0x1p-126;
  return std::min(overflow_threshold(dtype), 1 / smallest_normal);
}

}  // namespace culprit
