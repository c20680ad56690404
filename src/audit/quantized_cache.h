#pragma once
// What a quantised cache may hold of the values that were written to it.
#include <vector>

#include "audit/bounded.h"
#include "audit/cache_history.h"
#include "decode/cache_spec.h"

namespace culprit {

/// The written values and how far from them what attention reads may lie, element by element, for a cache that quantises by the rule of
/// decode/affine_groups.h in `dtype`. Vectors that are not known, and groups that no affine form can hold (a value that is not finite, or a range
/// beyond f32), are untested.
///
/// For an element at distance d from its group's edge, with n = 2^bits - 1 levels beside the edge, the bound is the sum of
///   * half a scale; where the levels do not reach it, d - n scale. The scale is |edge| / k; where the roundings of k's quotient (three, in
///     f32: range, step, quotient) can give two whole numbers, the larger of both bounds. An element at the edge has q = 0: none of this.
///   * the roundings of (x - bias) / scale before it is rounded to q: three in f32, of at most n + 1 levels;
///   * q roundings of the scale to the dtype, after one to f32. The bias is the edge, which the dtype holds, or 0: no rounding;
///   * the rounding of the product scale q, and of its sum with the bias, to the dtype: engines dequantise with two ops.
/// q is at most one above d / scale. Where the product may overflow the dtype, the bound is infinite.
///
/// With `actual`, what attention read: an element whose scale is certain and whose roundings alone (the last two lines) are less than half a
/// scale is judged by them, around the level scale q + bias that is nearest to what was read, if that level is within the bound above. So
/// values between two levels, such as were never quantised, are outside of their bound. Elsewhere all stays as it is.
[[nodiscard]] Bounded quantized_cache_bounds(const CacheHistory::Expected& written, const CacheSpec& spec, DType dtype,
                                             const Tensor* actual = nullptr);

}  // namespace culprit
