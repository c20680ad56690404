#pragma once
// What a trace keeps of every tensor, also of those whose values it does not keep.
#include <cstdint>

#include "tensor/tensor.h"

namespace culprit {

/// NaNs and infinities are counted and take no part in the rest.
struct Statistics {
  std::int64_t count = 0;   // of all elements
  double min = 0, max = 0;  // NaN when no value is finite
  double l2 = 0;            // relative error at most 3 * 2^-53 whatever the magnitudes; inf only when the norm exceeds every double
  std::int64_t nans = 0, infinities = 0;
};

[[nodiscard]] Statistics statistics_of(const Tensor& tensor);

}  // namespace culprit
