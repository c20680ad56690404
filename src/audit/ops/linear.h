#pragma once
// Linear ops of many tokens at once, with their bounds.
#include <span>
#include <vector>

#include "audit/audit.h"
#include "audit/bounds.h"

namespace culprit {

struct LinearBounds {
  std::vector<double> value;      // [n, out]
  std::vector<double> bound;      // of the arithmetic as declared
  std::vector<double> standard;   // of the default arithmetic; empty when that is what was declared
  std::vector<double> deviation;  // accumulation in the dtype: bound on the standard deviation of the error; empty otherwise
};

/// x [n, in] times weight [out, in], results in `dtype`. `magnitude` [out, in]: what an engine's terms may be as large as, instead of
/// |weight|, when it computes a weight from parts (QuantizedValues); empty for a dense weight. `bias` [out], or empty.
[[nodiscard]] LinearBounds bounded_linear(std::span<const double> x, std::int64_t n, const Tensor& weight, const Tensor& magnitude,
                                          const Tensor& bias, DType dtype, const Arithmetic& arithmetic, unsigned threads = 0);

/// Whether errors are as large as accumulation in the dtype makes them, and no larger, all together: their mean square, each in units of
/// its own deviation, is at most 1. That is far sharper than the bounds of single elements: a term left out of every sum shows. `actual`
/// and `bounds` in one order.
[[nodiscard]] bool errors_as_accumulated_in_dtype(const LinearBounds& bounds, std::span<const double> actual);

}  // namespace culprit
