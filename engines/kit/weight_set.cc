#include "engines/kit/weight_set.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/pool.h"
#include "decode/model_weights.h"

namespace culprit::kit {

Tensor rounded_dense(const Weight& weight, DType dtype) {
  if (dtype == DType::f32) return weight.to_f32();
  auto rounded = Tensor::zeros(dtype, weight.shape());
  const auto columns = rounded.dim(-1);
  if (rounded.count() == 0) return rounded;
  const auto rows = rounded.count() / columns;
  constexpr std::int64_t kBlock = 1 << 14;  // elements converted at a time: they stay in the cache
  const auto grain = static_cast<std::size_t>(std::max<std::int64_t>(1, kBlock / columns));
  auto* out = rounded.mutable_bytes().data();
  parallel_for(static_cast<std::size_t>(rows), grain, [&](std::size_t begin, std::size_t end) {
    std::vector<float> values((end - begin) * static_cast<std::size_t>(columns));
    weight.rows_f32(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end), values.data());
    store_many(dtype, values.data(), values.size(), out + begin * static_cast<std::size_t>(columns) * size_of(dtype));
  });
  return rounded;
}

Weight rounded_scales(const Weight& weight, DType dtype) {
  auto rounded = weight;
  rounded.scales = weight.scales.cast(dtype);
  rounded.biases = weight.biases.cast(dtype);
  return rounded;
}

WeightSet::WeightSet(Backend& backend, LoadPlan plan, Model model) : backend_(backend), plan_(std::move(plan)), model_(std::move(model)) {}

Result<std::unique_ptr<WeightSet>> WeightSet::load(Backend& backend, const LoadPlan& plan) {
  if (!is_float(plan.dtype)) return fail("plan-invalid", fmt::format("a model does not run in {}", name_of(plan.dtype)));
  if (plan.weights == WeightSource::engine && plan.weight_fault.q4_1_nibble_offset != GgufReadFault{}.q4_1_nibble_offset)
    return fail("plan-invalid", "a weight fault is of culprit's reader, but the engine's own loader is asked for");
  CULPRIT_TRY(auto model, Model::open(plan.model));
  std::unique_ptr<WeightSet> set(new WeightSet(backend, plan, std::move(model)));
  CULPRIT_CHECK(set->read_all());
  CULPRIT_CHECK(set->check_shapes());
  for (const auto& name : set->model_.weight_names()) CULPRIT_CHECK(set->for_engine(name, false));
  return set;
}

Result<void> WeightSet::read_all() {
  if (plan_.weights == WeightSource::culprit) {
    for (const auto& name : model_.weight_names()) {
      CULPRIT_TRY(loaded_[name], model_.weight(name, plan_.weight_fault));
    }
    return {};
  }
  CULPRIT_TRY(auto tensors, backend_.load_checkpoint(plan_.model.string()));
  for (auto& [name, weight] : tensors)
    if (const auto canonical = model_.canonical_name(name); !canonical.empty()) loaded_[canonical] = std::move(weight);
  for (const auto& name : model_.weight_names())
    if (!loaded_.contains(name))
      return fail("engine-error",
                  fmt::format("the engine's loader returned {} tensors, but not {}", tensors.size(), model_.checkpoint_name(name)));
  return {};
}

Result<void> WeightSet::check_shapes() const {
  for (const auto& spec : model_weights(model_.graph()))
    if (const auto shape = loaded_.at(spec.canonical).shape(); shape != spec.shape)
      return fail("engine-error", fmt::format("{}: expected shape {}, loaded {}", spec.canonical, to_string(spec.shape), to_string(shape)));
  return {};
}

Result<Tensor> WeightSet::as_used(const std::string& canonical, bool packed) const {
  const auto found = loaded_.find(canonical);
  if (found == loaded_.end()) return fail("internal", fmt::format("weight {} is not loaded", canonical));
  if (packed && found->second.quantized()) return rounded_scales(found->second, plan_.dtype).to_f32();
  return rounded_dense(found->second, plan_.dtype);
}

Result<const BackendWeight*> WeightSet::for_engine(const std::string& canonical, bool packed) {
  auto& made = made_[canonical];
  if (made.dense == nullptr) {
    CULPRIT_TRY(const auto host, as_used(canonical, false));
    CULPRIT_TRY(made.dense, backend_.from_host(host));
  }
  if (!packed || made.packed != nullptr) return &made;
  if (!quantized(canonical)) return fail("not-supported", fmt::format("{} is not quantised, so it has no packed form", canonical));
  const auto rounded = rounded_scales(loaded_.at(canonical), plan_.dtype);
  CULPRIT_TRY(made.scales, backend_.from_host(rounded.scales));
  CULPRIT_TRY(made.biases, backend_.from_host(rounded.biases));
  CULPRIT_TRY(made.packed, backend_.from_host(rounded.packed));
  made.bits = rounded.bits;
  made.group = rounded.group;
  return &made;
}

}  // namespace culprit::kit
