#include "compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace culprit {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

DifferenceCounts element_counts(DType dtype, double expected, double actual) {
  DifferenceCounts counts;
  counts.count = 1;
  const bool both_nan = std::isnan(expected) && std::isnan(actual);
  if (both_nan || expected == actual) {
    counts.equal = 1;
    return counts;
  }
  const bool nan = std::isnan(expected) || std::isnan(actual);
  const bool infinite = std::isinf(expected) || std::isinf(actual);  // not both with one sign: those are equal
  counts.nan_mismatches = nan;
  counts.inf_mismatches = !nan && infinite;
  counts.zero_mismatches = expected == 0 || actual == 0;
  counts.sign_mismatches = !nan && expected != 0 && actual != 0 && std::signbit(expected) != std::signbit(actual);
  counts.error_max = nan || infinite ? kInfinity : std::abs(actual - expected);
  counts.error_ulp_max = ulp_distance(dtype, expected, actual);
  return counts;
}

void add_place(std::vector<PlaceDifference>& places, std::int64_t place, const DifferenceCounts& counts) {
  const auto index = static_cast<std::size_t>(place);
  places[index].counts.merge(counts);
}

std::vector<PlaceDifference> places(std::int64_t count) {
  std::vector<PlaceDifference> made(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) made[static_cast<std::size_t>(i)].place = i;
  return made;
}

}  // namespace

void SquareSum::scale_to(int exponent) {
  const double factor = std::ldexp(1.0, 2 * std::max(exponent_ - exponent, -600));
  Sum scaled;
  scaled.add(sum_.value() * factor);
  sum_ = scaled;
  exponent_ = exponent;
}

void SquareSum::add(double x) {
  if (!std::isfinite(x)) {
    not_finite_ += std::abs(x);
    return;
  }
  if (x == 0) return;
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  if (empty_) exponent_ = exponent;
  empty_ = false;
  if (exponent > exponent_) scale_to(exponent);
  const double scaled = std::ldexp(fraction, std::max(exponent - exponent_, -600));
  sum_.add(scaled * scaled);
}

void SquareSum::merge(const SquareSum& other) {
  not_finite_ += other.not_finite_;
  if (other.empty_) return;
  if (empty_) {
    const double kept = not_finite_;
    *this = other;
    not_finite_ = kept;
    return;
  }
  SquareSum scaled = other;
  const int exponent = std::max(exponent_, other.exponent_);
  if (exponent > exponent_) scale_to(exponent);
  if (exponent > scaled.exponent_) scaled.scale_to(exponent);
  sum_.merge(scaled.sum_);
}

double SquareSum::root() const {
  if (not_finite_ != 0) return not_finite_;
  return empty_ ? 0 : std::ldexp(std::sqrt(sum_.value()), exponent_);
}

void DifferenceCounts::merge(const DifferenceCounts& other) {
  count += other.count;
  equal += other.equal;
  nan_mismatches += other.nan_mismatches;
  inf_mismatches += other.inf_mismatches;
  zero_mismatches += other.zero_mismatches;
  sign_mismatches += other.sign_mismatches;
  error_max = std::max(error_max, other.error_max);
  error_ulp_max = std::max(error_ulp_max, other.error_ulp_max);
}

Result<Difference> compare(const Tensor& expected, const Tensor& actual) {
  if (expected.shape() != actual.shape())
    return fail("tensor-layout", fmt::format("expected shape {}, actual {}", to_string(expected.shape()), to_string(actual.shape())));
  if (expected.count() == 0)
    return fail("cannot-show", fmt::format("there is no element to compare in shape {}", to_string(expected.shape())));
  const auto& shape = expected.shape();
  const auto rank = shape.size();
  // Distances are counted in the dtype that holds fewer values: the wider side cannot be closer than that.
  const auto dtype = rounding_of(expected.dtype()).unit > rounding_of(actual.dtype()).unit ? expected.dtype() : actual.dtype();
  const auto right = expected.values(), seen = actual.values();

  Difference difference;
  if (rank >= 1) difference.rows = places(shape[0]);
  if (rank == 4) difference.heads = places(shape[1]);
  if (rank >= 3) difference.tokens = places(shape[rank - 2]);
  SquareSum error_squares, right_squares, seen_squares;
  std::int64_t worst = -1;
  for (std::size_t i = 0; i < right.size(); ++i) {
    const auto counts = element_counts(dtype, right[i], seen[i]);
    if (counts.equal == 0 && (worst < 0 || counts.error_max > difference.all.error_max)) worst = static_cast<std::int64_t>(i);
    difference.all.merge(counts);
    const auto place = static_cast<std::int64_t>(i);
    if (rank >= 1) add_place(difference.rows, place / (expected.count() / shape[0]), counts);
    if (rank == 4) add_place(difference.heads, place / (shape[2] * shape[3]) % shape[1], counts);
    if (rank >= 3) add_place(difference.tokens, place / shape[rank - 1] % shape[rank - 2], counts);
    if (counts.equal == 0) error_squares.add(seen[i] - right[i]);
    right_squares.add(right[i]);
    seen_squares.add(seen[i]);
  }
  if (worst >= 0) {
    difference.expected_at_worst = right[static_cast<std::size_t>(worst)];
    difference.actual_at_worst = seen[static_cast<std::size_t>(worst)];
    for (auto rest = worst, axis = static_cast<std::int64_t>(rank) - 1; axis >= 0; --axis) {
      difference.worst.insert(difference.worst.begin(), rest % shape[static_cast<std::size_t>(axis)]);
      rest /= shape[static_cast<std::size_t>(axis)];
    }
  }
  const double right_norm = right_squares.root(), seen_norm = seen_squares.root(), error_norm = error_squares.root();
  difference.relative_l2 = error_norm == 0 ? 0 : error_norm / right_norm;
  if (right_norm == 0 || seen_norm == 0) {
    difference.cosine = right_norm == seen_norm ? 1 : 0;
  } else {
    Sum products;  // of unit vectors, so that no product over- or underflows unnoticed
    for (std::size_t i = 0; i < right.size(); ++i) {
      const auto product = two_product(right[i] / right_norm, seen[i] / seen_norm);
      products.add(product.value);
      products.add(product.error);
    }
    difference.cosine = products.value();
  }
  return difference;
}

std::string to_string(const Difference& difference) {
  const auto& all = difference.all;
  if (difference.equal()) return fmt::format("all {} equal", all.count);
  std::string where;
  for (const auto index : difference.worst) where += (where.empty() ? "" : ", ") + std::to_string(index);
  return fmt::format("{} of {} differ, largest {:.3g} at [{}] (expected {:.6g}, actual {:.6g}), {} ulp, relative L2 {:.2g}",
                     all.differing(), all.count, all.error_max, where, difference.expected_at_worst, difference.actual_at_worst,
                     all.error_ulp_max, difference.relative_l2);
}

}  // namespace culprit
