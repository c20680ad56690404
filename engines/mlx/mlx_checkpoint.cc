#include "mlx_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

namespace culprit::mlx_engine {

Result<std::vector<std::pair<std::string, Weight>>> load_gguf(const std::string& path, StorageIds& ids) {
  const auto arrays = mx::load_gguf(path).first;
  const auto is_part = [&](const std::string& name) {
    for (const std::string_view suffix : {".scales", ".biases"})
      if (name.ends_with(suffix) && arrays.contains(name.substr(0, name.size() - suffix.size()) + ".weight")) return true;
    return false;
  };
  std::vector<std::pair<std::string, Weight>> weights;
  for (const auto& [name, array] : arrays) {
    if (is_part(name)) continue;
    Weight weight;
    const auto stem = name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name;
    const auto scales = arrays.find(stem + ".scales"), biases = arrays.find(stem + ".biases");
    if (scales != arrays.end() && biases != arrays.end()) {
      CULPRIT_TRY(weight.packed, to_host_contiguous(array, ids));
      CULPRIT_TRY(weight.scales, to_host_contiguous(scales->second, ids));
      CULPRIT_TRY(weight.biases, to_host_contiguous(biases->second, ids));
      // load_gguf keeps GGUF's blocks, which are groups of 32 in every type that it does not expand.
      weight.group = 32;
      const auto columns = weight.scales.dim(-1) * weight.group;
      if (columns == 0 || weight.packed.dim(-1) * 32 % columns != 0)
        return fail("engine-error",
                    fmt::format("packed {} does not fit scales {}", to_string(weight.packed.shape()), to_string(weight.scales.shape())),
                    name);
      weight.bits = static_cast<int>(weight.packed.dim(-1) * 32 / columns);
      weight.source_type = fmt::format("affine {}-bit, groups of {}", weight.bits, weight.group);
    } else {
      CULPRIT_TRY(weight.dense, to_host_contiguous(array, ids));
      weight.source_type = std::string(name_of(weight.dense.dtype()));
    }
    weights.emplace_back(name, std::move(weight));
  }
  std::ranges::sort(weights, {}, &std::pair<std::string, Weight>::first);
  return weights;
}

}  // namespace culprit::mlx_engine
