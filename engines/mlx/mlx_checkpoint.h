#pragma once
// MLX's own GGUF loader.
#include <string>
#include <utility>
#include <vector>

#include "format/weight.h"
#include "mlx_array.h"

namespace culprit::mlx_engine {

/// Every tensor of the file as MLX's load_gguf gives it, under its name in the file, sorted. Quantised ones keep MLX's packed words, scales
/// and biases; source_type says only what MLX still knows ("affine 4-bit, groups of 32", "f32"). Error ids: engine-error, not-supported.
[[nodiscard]] Result<std::vector<std::pair<std::string, Weight>>> load_gguf(const std::string& path, StorageIds& ids);

}  // namespace culprit::mlx_engine
