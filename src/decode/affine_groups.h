#pragma once
// Affine quantisation of groups of channels, as a quantised cache holds them: value = scale * q + bias with q in [0, 2^bits - 1].
#include "decode/cache_spec.h"
#include "tensor/tensor.h"

namespace culprit {

/// `packed` u32 [.., channels * bits / 32], channel i of a vector in bits bits * i .. of its little-endian bit stream; `scales` and `biases`
/// [.., channels / group].
struct AffineGroups {
  Tensor packed, scales, biases;
};

/// No step is smaller: groups of equal values have one too.
inline constexpr double kAffineStepLeast = 1e-7;

/// x [.., channel], of a float dtype, in groups of spec.group channels. The edge of a group is its largest or its smallest value, whichever
/// is further from 0 (the largest when both are as far). The bias is the edge, and the scale is edge / k with the whole number k that is
/// nearest to edge / step, step = (largest - smallest) / (2^bits - 1), at least kAffineStepLeast: so the edge is exact, and 0 too where it
/// lies among the levels. The levels reach from the edge as far as 2^bits - 1 scales, which may be up to one short of the other end. Where
/// k = 0 the scale is the step and the bias 0. (MLX, affine mode.) Here in float64, with scale and bias rounded once to x's dtype; q is
/// found with the scale before that. The channels must be whole groups.
[[nodiscard]] AffineGroups quantise_groups(const Tensor& x, const CacheSpec& spec);

/// scale * q + bias in float64, rounded once to the dtype of the scales.
[[nodiscard]] Tensor dequantise_groups(const AffineGroups& groups, const CacheSpec& spec);

}  // namespace culprit
