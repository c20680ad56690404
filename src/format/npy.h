#pragma once
// NumPy .npy, versions 1 to 3, little-endian, C or Fortran order.
#include <filesystem>

#include "base/result.h"
#include "tensor/tensor.h"

namespace culprit {

/// Error ids: file-missing, npy-invalid. Fortran order becomes a strided view.
[[nodiscard]] Result<Tensor> read_npy(const std::filesystem::path& path);
/// bf16 has no npy dtype and is written as f32. Error ids: file-write.
[[nodiscard]] Result<void> write_npy(const std::filesystem::path& path, const Tensor& tensor);

}  // namespace culprit
