#include "engines/kit/weight_set.h"

#include <fmt/format.h>

namespace culprit::kit {

WeightSet::WeightSet(Backend& backend, LoadPlan plan, Model model) : backend_(backend), plan_(std::move(plan)), model_(std::move(model)) {}

Result<std::unique_ptr<WeightSet>> WeightSet::load(Backend& backend, const LoadPlan& plan) {
  CULPRIT_TRY(auto model, Model::open(plan.model));
  std::unique_ptr<WeightSet> set(new WeightSet(backend, plan, std::move(model)));
  if (plan.weights == WeightSource::engine) {
    CULPRIT_TRY(auto tensors, backend.load_checkpoint(plan.model.string()));
    for (auto& [name, weight] : tensors)
      if (const auto canonical = set->model().canonical_name(name); !canonical.empty()) set->loaded_[canonical] = std::move(weight);
    for (const auto& name : set->model().weight_names())
      if (!set->loaded_.contains(name))
        return fail("engine-error", fmt::format("the engine's loader returned {} tensors, but not {}", tensors.size(), set->model().checkpoint_name(name)));
  } else {
    for (const auto& name : set->model().weight_names()) {
      CULPRIT_TRY(set->loaded_[name], set->model().weight(name, plan.weight_fault));
    }
  }
  for (const auto& name : set->model().weight_names()) CULPRIT_CHECK(set->for_engine(name, false));
  return set;
}

Result<Tensor> WeightSet::host_dense(const std::string& canonical) const {
  const auto found = loaded_.find(canonical);
  if (found == loaded_.end()) return fail("internal", fmt::format("weight {} is not loaded", canonical));
  return found->second.to_f32().cast(plan_.dtype);
}

Result<const BackendWeight*> WeightSet::for_engine(const std::string& canonical, bool packed) {
  auto& made = made_[canonical];
  if (made.dense == nullptr) {
    CULPRIT_TRY(const auto host, host_dense(canonical));
    CULPRIT_TRY(made.dense, backend_.from_host(host));
  }
  if (!packed || made.packed != nullptr) return &made;
  const auto& weight = loaded_.at(canonical);
  if (!weight.quantized()) return fail("not-supported", fmt::format("{} is not quantised, so it has no packed form", canonical));
  CULPRIT_TRY(made.packed, backend_.from_host(weight.packed));
  CULPRIT_TRY(made.scales, backend_.from_host(weight.scales.cast(plan_.dtype)));
  CULPRIT_TRY(made.biases, backend_.from_host(weight.biases.cast(plan_.dtype)));
  made.bits = weight.bits;
  made.group = weight.group;
  return &made;
}

}  // namespace culprit::kit
