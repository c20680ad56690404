#pragma once
// A linear op in another legal order: f32 products summed from the last to the first. For the null that a summation order must not alarm.
#include "tensor/tensor.h"

namespace culprit::ref {

/// x [.., in], weight [out, in], bias [out] or empty -> [.., out] in `dtype`: f32 accumulation from the bias on, one rounding.
[[nodiscard]] Tensor reversed_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, DType dtype);

}  // namespace culprit::ref
