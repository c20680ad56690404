#pragma once
// Differences of two tensors that should be equal: never one number, and every number says where.
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "num/sum.h"
#include "tensor/tensor.h"

namespace culprit {

/// A sum of squares that neither overflows nor underflows: scaled by a power of two before squaring, compensated. Mergeable.
class SquareSum {
 public:
  void add(double x);
  void merge(const SquareSum& other);
  /// sqrt of the sum. Infinite or NaN when a term was.
  [[nodiscard]] double root() const;

 private:
  void scale_to(int exponent);
  Sum sum_;           // of (x 2^-exponent_)^2
  int exponent_ = 0;  // of the largest term so far
  bool empty_ = true;
  double not_finite_ = 0;  // sum of terms that are not finite
};

/// What one set of elements showed. Mergeable, in any grouping.
struct DifferenceCounts {
  std::int64_t count = 0;            // elements
  std::int64_t equal = 0;            // same value (any NaN equals any NaN; -0 equals +0)
  std::int64_t nan_mismatches = 0;   // NaN on one side only
  std::int64_t inf_mismatches = 0;   // infinite on one side only, or with another sign
  std::int64_t zero_mismatches = 0;  // zero on one side only
  std::int64_t sign_mismatches = 0;  // both non-zero and not NaN, of other signs
  double error_max = 0;              // largest |actual - expected|; +inf with any NaN or inf mismatch
  std::uint64_t error_ulp_max = 0;   // in the narrower dtype; UINT64_MAX with a NaN mismatch

  [[nodiscard]] std::int64_t differing() const { return count - equal; }
  void merge(const DifferenceCounts& other);
};

/// The same for one row, head or token.
struct PlaceDifference {
  std::int64_t place = 0;
  DifferenceCounts counts;
};

struct Difference {
  DifferenceCounts all;
  std::vector<std::int64_t> worst;  // index of error_max's first element; empty when all are equal
  double expected_at_worst = 0, actual_at_worst = 0;
  double relative_l2 = 0;               // |actual - expected| / |expected|, 2-norms; 0 when both are 0, +inf when only the divisor is
  double cosine = 1;                    // of the angle between the two; 1 when both are 0, 0 when one is
  std::vector<PlaceDifference> rows;    // axis 0
  std::vector<PlaceDifference> heads;   // axis 1 of rank 4; empty otherwise
  std::vector<PlaceDifference> tokens;  // the axis before the last, of rank 3 and 4
  [[nodiscard]] bool equal() const { return all.equal == all.count; }
};

/// [row, .., channel] against the same shape; dtypes may differ. Error ids: tensor-layout when shapes differ, cannot-show when there is no
/// element: nothing compared is not agreement.
[[nodiscard]] Result<Difference> compare(const Tensor& expected, const Tensor& actual);

/// One line: "3 of 4096 differ, largest 0.25 at [1, 0, 7] (expected 1.5, actual 1.25), 64 ulp, relative L2 1.2e-3".
[[nodiscard]] std::string to_string(const Difference& difference);

}  // namespace culprit
