#pragma once
// The weights of a loaded model: as the loader holds them (host), and in the forms that the engine's ops take.
#include <map>
#include <memory>
#include <string>

#include "decode/model.h"
#include "engine/plan.h"
#include "engines/kit/backend.h"

namespace culprit::kit {

class WeightSet {
 public:
  /// Error ids: those of Model::open and of the backend's loader; plan-invalid; engine-error when the loader lacks a tensor that the graph
  /// needs, or gives it another shape.
  [[nodiscard]] static Result<std::unique_ptr<WeightSet>> load(Backend& backend, const LoadPlan& plan);

  [[nodiscard]] const Model& model() const { return model_; }
  [[nodiscard]] const LoadPlan& plan() const { return plan_; }
  /// As loaded, by canonical name.
  [[nodiscard]] const std::map<std::string, Weight>& loaded() const { return loaded_; }
  [[nodiscard]] bool quantized(const std::string& canonical) const { return loaded_.at(canonical).quantized(); }

  /// The dense form is the loaded weight's f32 values rounded once to the run's dtype. With `packed`, also the quantised form, scales and
  /// biases rounded once. Error ids: not-supported when a packed form is wanted of a weight that is not quantised; the backend's.
  [[nodiscard]] Result<const BackendWeight*> for_engine(const std::string& canonical, bool packed);
  /// The values that an op with the weight in that form means, on the host: the dense form, or scale * q + bias of the packed one in f32.
  [[nodiscard]] Result<Tensor> as_used(const std::string& canonical, bool packed) const;

 private:
  WeightSet(Backend& backend, LoadPlan plan, Model model);
  [[nodiscard]] Result<void> read_all();
  [[nodiscard]] Result<void> check_shapes() const;

  Backend& backend_;
  LoadPlan plan_;
  Model model_;
  std::map<std::string, Weight> loaded_;
  std::map<std::string, BackendWeight> made_;
};

/// The logical f32 values of `weight`, each rounded once to `dtype`.
[[nodiscard]] Tensor rounded_dense(const Weight& weight, DType dtype);
/// The same integers with scales and biases rounded once to `dtype`.
[[nodiscard]] Weight rounded_scales(const Weight& weight, DType dtype);

}  // namespace culprit::kit
