#pragma once
// A checkpoint's weights in the form in which a run used them.
#include <cstdint>
#include <map>
#include <string>

#include "audit/audit.h"

namespace culprit {

/// Weights as culprit hands them to an engine: dense ones are the checkpoint's logical f32 values rounded once to the run's dtype;
/// quantised ones keep their integers, with scales and biases rounded once to that dtype. Keeps what it made up to a budget. Not for
/// several threads at once.
class ModelWeights : public UsedWeights {
 public:
  /// `model` must outlive this.
  ModelWeights(const Model& model, DType dtype, GgufReadFault fault = {}, std::int64_t budget_bytes = std::int64_t{1} << 30)
      : model_(model), dtype_(dtype), fault_(fault), budget_(budget_bytes) {}

  [[nodiscard]] Result<Tensor> dense(const std::string& canonical) override;
  [[nodiscard]] Result<std::optional<QuantizedValues>> quantized(const std::string& canonical) override;
  [[nodiscard]] Result<std::optional<Weight>> packed(const std::string& canonical) override;

 private:
  const Model& model_;
  DType dtype_;
  GgufReadFault fault_;
  std::int64_t budget_;  // bytes that may still be kept
  std::map<std::string, Tensor> dense_;
};

/// The values and magnitudes of a quantised weight whose scales and biases were rounded once to `dtype`.
[[nodiscard]] QuantizedValues quantized_values(const Weight& weight, DType dtype);

}  // namespace culprit
