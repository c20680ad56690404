#pragma once
// MLX behind the kit's interface, one source for all releases from 0.29.3 on. Not thread-safe: since 0.32 MLX's streams belong to threads.
#include "engines/kit/backend.h"
#include "mlx_array.h"

namespace culprit::mlx_engine {

class MlxBackend final : public kit::Backend {
 public:
  [[nodiscard]] Json hello() override;
  [[nodiscard]] std::vector<std::string> variants(Op op) override;
  [[nodiscard]] Result<kit::Array> from_host(const Tensor& tensor) override;
  [[nodiscard]] Result<Tensor> to_host(const kit::Array& array) override;
  [[nodiscard]] Result<void> eval(std::span<const kit::Array> arrays) override;
  [[nodiscard]] Result<void> async_eval(std::span<const kit::Array> arrays) override;
  [[nodiscard]] Result<kit::Array> apply(const kit::OpRequest& request) override;
  [[nodiscard]] Result<kit::Array> reshape(const kit::Array& x, const Shape& shape) override;
  [[nodiscard]] Result<kit::Array> swap_axes(const kit::Array& x, int axis_a, int axis_b) override;
  [[nodiscard]] Result<kit::Array> concatenate(std::span<const kit::Array> parts, int axis) override;
  [[nodiscard]] Result<kit::Array> slice(const kit::Array& x, int axis, std::int64_t begin, std::int64_t end) override;
  [[nodiscard]] Result<kit::Array> slice_update(const kit::Array& x, const kit::Array& update, int axis, std::int64_t begin) override;
  [[nodiscard]] Result<kit::Array> zeros(const Shape& shape, DType dtype) override;
  [[nodiscard]] Shape shape(const kit::Array& x) override;
  [[nodiscard]] bool quantises() const override { return true; }
  [[nodiscard]] Result<std::vector<kit::Array>> quantise(const kit::Array& x, int bits, int group) override;
  [[nodiscard]] Result<kit::Array> dequantise(std::span<const kit::Array> planes, int bits, int group) override;
  [[nodiscard]] Result<std::vector<std::pair<std::string, Weight>>> load_checkpoint(const std::string& path) override;

 private:
  StorageIds storage_ids_;
  Json hello_;  // null until asked: the library's hash is worth keeping
};

}  // namespace culprit::mlx_engine
