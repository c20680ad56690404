#pragma once
// A weight as a checkpoint holds it: dense, or affine-quantised in groups along the last axis (value = scale * q + bias).
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace culprit {

/// Either `dense` is set, or packed, scales and biases are. Packed: u32 [rows, columns * bits / 32], element i of a row in bits
/// bits*i .. of the row's little-endian bit stream (MLX's affine layout for bits that divide 32). scales, biases: [rows, columns / group].
/// Weights of experts have an axis for these before the rows.
struct Weight {
  Tensor dense;
  Tensor packed;
  Tensor scales;
  Tensor biases;
  int bits = 0;
  int group = 0;
  std::string source_type;  // "Q4_1", "F32", ...

  [[nodiscard]] bool quantized() const { return bits != 0; }
  /// Logical shape [rows, columns] or [columns].
  [[nodiscard]] Shape shape() const;
  /// Logical values of rows [begin, end) of the last axis as f32: dense is converted, quantised is float(scale * q + bias) with scale
  /// and bias exact and one rounding (the product is exact: at most 11 + 8 bits). out has (end - begin) * columns places.
  void rows_f32(std::int64_t begin, std::int64_t end, float* out) const;
  /// All logical values as an f32 tensor.
  [[nodiscard]] Tensor to_f32() const;
  /// XXH3-128 over to_f32's bytes, without holding all of it.
  [[nodiscard]] std::string hash_f32() const;
};

}  // namespace culprit
