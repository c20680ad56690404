#pragma once
// The weights of a loaded model: as the loader holds them (host), and in the forms that the engine's ops take.
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "decode/model.h"
#include "engine/plan.h"
#include "engines/kit/backend.h"

namespace culprit::kit {

class WeightSet {
 public:
  /// Error ids: those of Model::open and of the backend's loader; engine-error when the loader lacks a tensor that the graph needs.
  [[nodiscard]] static Result<std::unique_ptr<WeightSet>> load(Backend& backend, const LoadPlan& plan);

  [[nodiscard]] const Model& model() const { return *model_; }
  [[nodiscard]] const LoadPlan& plan() const { return plan_; }
  /// As loaded, by canonical name.
  [[nodiscard]] const std::map<std::string, Weight>& loaded() const { return loaded_; }
  /// The dense form is the loaded weight's f32 values rounded once to the run's dtype. With `packed`, also the quantised form, scales and
  /// biases rounded once. Error ids: not-supported when a packed form is wanted of a weight that is not quantised.
  [[nodiscard]] Result<const BackendWeight*> for_engine(const std::string& canonical, bool packed);
  /// The dense form on the host.
  [[nodiscard]] Result<Tensor> host_dense(const std::string& canonical) const;

 private:
  WeightSet(Backend& backend, LoadPlan plan, Model model);
  Backend& backend_;
  LoadPlan plan_;
  std::optional<Model> model_;
  std::map<std::string, Weight> loaded_;
  std::map<std::string, BackendWeight> made_;
};

}  // namespace culprit::kit
