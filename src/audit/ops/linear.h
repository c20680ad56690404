#pragma once
// Linear ops of many tokens at once, with their bounds.
#include <span>
#include <vector>

#include "audit/audit.h"
#include "audit/bounds.h"

namespace culprit {

struct LinearBounds {
  std::vector<double> value;     // [n, out]
  std::vector<double> bound;     // of the arithmetic as declared
  std::vector<double> standard;  // of the default arithmetic; empty when that is what was declared
};

/// x [n, in] times weight [out, in], results in `dtype`. `magnitude` [out, in]: what an engine's terms may be as large as, instead of |weight|, when
/// it computes a weight from parts (QuantizedValues); empty for a dense weight.
[[nodiscard]] LinearBounds bounded_linear(std::span<const double> x, std::int64_t n, const Tensor& weight, const Tensor& magnitude, DType dtype,
                                          const Arithmetic& arithmetic, unsigned threads = 0);

}  // namespace culprit
