#pragma once
// The reference engine: every op in float64 from the values of its inputs, rounded once to the dtype of the run.
#include "engines/kit/backend.h"

namespace culprit::ref {

class RefBackend : public kit::Backend {
 public:
  explicit RefBackend(std::string program) : program_(std::move(program)) {}

  [[nodiscard]] Json hello() override;
  [[nodiscard]] std::vector<std::string> variants(Op op) override;
  [[nodiscard]] Result<kit::Array> from_host(const Tensor& tensor) override;
  [[nodiscard]] Result<Tensor> to_host(const kit::Array& array) override;
  [[nodiscard]] Result<void> eval(std::span<const kit::Array>) override { return {}; }
  [[nodiscard]] Result<void> async_eval(std::span<const kit::Array>) override { return {}; }
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
  std::string program_;  // path of the running driver, for its hash
};

}  // namespace culprit::ref
