#pragma once
// MLX arrays behind the kit's type-erased handle, and the way between host tensors and MLX storage.
#include <mlx/mlx.h>

#include <map>
#include <memory>

#include "engines/kit/backend.h"

namespace culprit::mlx_engine {

namespace mx = ::mlx::core;

[[nodiscard]] kit::Array wrap(mx::array array);
[[nodiscard]] const mx::array& unwrap(const kit::Array& array);

/// Error ids: not-supported for shapes beyond MLX's 32-bit dimensions.
[[nodiscard]] Result<mx::Shape> to_mlx(const Shape& shape);
[[nodiscard]] Shape from_mlx(const mx::Shape& shape);
[[nodiscard]] mx::Dtype to_mlx(DType dtype);
/// Error ids: not-supported for dtypes that culprit has no name for (complex64, int8, ..).
[[nodiscard]] Result<DType> from_mlx(mx::Dtype dtype);

/// A contiguous tensor without offset is copied; any other layout becomes a view (as_strided) of a copy of its storage, so that an op sees
/// the same strides and offset.
[[nodiscard]] Result<mx::array> to_mlx(const Tensor& tensor);

/// Names storages: equal ids are one MLX storage, and an id is not reused when an address is.
class StorageIds {
 public:
  [[nodiscard]] std::uint64_t id_of(const mx::array& evaluated);

 private:
  struct Known {
    std::weak_ptr<const void> storage;
    std::uint64_t id;
  };
  std::map<const void*, Known> known_;
  std::size_t prune_at_ = 1024;
};

/// Evaluates `array` and copies its storage from the first byte up to the last element that the layout, or a reader that ignores strides,
/// touches: the tensor's strides, offset and storage id are MLX's own. Error ids: not-supported, tensor-layout.
[[nodiscard]] Result<Tensor> to_host(mx::array array, StorageIds& ids);
/// As to_host, but contiguous, whatever MLX's layout was.
[[nodiscard]] Result<Tensor> to_host_contiguous(const mx::array& array, StorageIds& ids);

}  // namespace culprit::mlx_engine
