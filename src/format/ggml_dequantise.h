#pragma once
// Block types of ggml that are read as dense f32: Q5_0, Q5_1, and the K types, whose groups and scales fit no engine's packed layout.
#include <cstddef>
#include <cstdint>

namespace culprit {

/// Writes the elements of one block. Each is scale * q - min, where scale is d * (scale of the group) and min is dmin * (min of the group):
/// every product is exact in f32 (at most 11 + 7 + 6 bits) and the difference rounds once, so neither the order of operations nor
/// contraction matters, and the value is the format's exact one rounded to f32. That is what ggml's dequantize_row_* computes.
/// A d or dmin that is not finite gives infinities and NaN as IEEE 754 does.
using DequantiseBlock = void (*)(const std::byte* block, float* out);

/// For the type with that number, or nullptr.
[[nodiscard]] DequantiseBlock find_dequantise(std::uint32_t type_number);

}  // namespace culprit
