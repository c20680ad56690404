#include "decode/hf_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "base/fields.h"
#include "decode/architecture.h"

namespace culprit {
namespace {
constexpr std::string_view kWeightSuffix = ".weight";

std::string stem_of(const std::string& name) {
  return name.ends_with(kWeightSuffix) ? name.substr(0, name.size() - kWeightSuffix.size()) : name;
}

Shape without_ones(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

struct Affine {
  int bits = 0;
  int group = 0;
};

/// config's quantization, or what it says of this module in particular.
Result<Affine> read_affine(const HfConfig& config, const std::string& module) {
  CULPRIT_TRY(auto quantization, config.object("quantization"));
  if (quantization.has(module)) {
    CULPRIT_TRY(quantization, quantization.object(module));
  }
  CULPRIT_CHECK(quantization.expect("mode", "affine"));
  Affine affine;
  CULPRIT_TRY(affine.bits, quantization.count("bits"));
  CULPRIT_TRY(affine.group, quantization.count("group_size"));
  const auto one_of = [](int value, std::initializer_list<int> values) { return std::ranges::find(values, value) != values.end(); };
  if (!one_of(affine.bits, {2, 3, 4, 5, 6, 8}))
    return quantization.unsupported("bits", fmt::format("expected 2, 3, 4, 5, 6 or 8, got {}", affine.bits));
  if (!one_of(affine.group, {32, 64, 128}))
    return quantization.unsupported("group_size", fmt::format("expected 32, 64 or 128, got {}", affine.group));
  return affine;
}
}  // namespace

Result<HfConfig> read_hf_config(const std::filesystem::path& folder) {
  const auto file = folder / kHfConfigFile;
  CULPRIT_TRY(const auto json, read_json_file(file));
  if (!json.is_object()) return fail("json-invalid", "expected an object", file.string());
  return HfConfig(json, file);
}

bool is_hf_wrapper(const HfConfig& config) {
  const auto type = config.text("model_type", "");
  return type && find_hf_wrapped(*type) != nullptr;
}

namespace {
/// The text model's config says everything; what the one around it repeats must agree, since engines take either.
Result<Facts> read_wrapped(const HfConfig& config, const Architecture& architecture) {
  CULPRIT_TRY(const auto text, config.object("text_config"));
  CULPRIT_TRY(const auto type, text.text("model_type", std::string(architecture.hf_type)));
  if (type != std::string(architecture.hf_type) + "_text") CULPRIT_CHECK(text.expect("model_type", architecture.hf_type));
  CULPRIT_TRY(auto facts, architecture.read_hf(text));
  CULPRIT_CHECK(config.expect("vocab_size", facts.vocabulary));
  CULPRIT_CHECK(config.expect("tie_word_embeddings", facts.tied_head));
  return facts;
}
}  // namespace

Result<Facts> read_hf_facts(const HfConfig& config) {
  CULPRIT_TRY(const auto type, config.text("model_type", ""));
  const auto* plain = find_hf_architecture(type);  // some names are of both kinds
  const auto* wrapped = plain == nullptr || config.has("text_config") ? find_hf_wrapped(type) : nullptr;
  const auto* architecture = wrapped != nullptr ? wrapped : plain;
  if (architecture == nullptr) {
    std::string known;
    for (const auto* entry : architectures())
      for (const auto name : {entry->hf_type, entry->hf_wrapper})
        if (!name.empty()) known += (known.empty() ? "" : ", ") + std::string(name);
    return config.unsupported("model_type", fmt::format("expected one of {}, got {}", known, Json(type).dump().substr(0, 64)));
  }
  // Packed weights of other tools are no MLX weights; MLX repeats its own under this key.
  if (config.has("quantization_config") && !config.has("quantization"))
    return config.unsupported("quantization_config", "expected none, or MLX's quantization beside it");
  return wrapped != nullptr ? read_wrapped(config, *wrapped) : architecture->read_hf(config);
}

tl::unexpected<Error> HfTensors::unsupported(const std::string& message) const {
  return fail("model-unsupported", message, folder_.string());
}

Result<void> HfTensors::add_file(const std::filesystem::path& path) {
  CULPRIT_TRY(const auto file, Safetensors::open(path));
  for (const auto& name : file.names()) {
    CULPRIT_TRY(auto tensor, file.tensor(name));
    if (!tensors_.emplace(name, std::move(tensor)).second) return unsupported(fmt::format("tensor {} is in two files", name));
  }
  return {};
}

Result<HfTensors> HfTensors::open(const std::filesystem::path& folder, bool in_wrapper) {
  HfTensors tensors;
  tensors.in_wrapper_ = in_wrapper;
  tensors.folder_ = folder;
  std::error_code ignored;
  const auto index = folder / kHfIndexFile;
  if (!std::filesystem::exists(index, ignored)) {
    CULPRIT_CHECK(tensors.add_file(folder / kHfTensorsFile));
    return tensors;
  }
  CULPRIT_TRY(const auto json, read_json_file(index));
  std::map<std::string, std::string> files;
  if (auto whole = Fields(json, "index", "json-invalid").required("weight_map", files).done(true); !whole)
    return fail(whole.error().id, whole.error().message, index.string());
  std::set<std::string> shards;
  for (const auto& [name, file] : files) shards.insert(file);
  for (const auto& shard : shards) {
    if (shard.empty() || std::filesystem::path(shard).filename() != shard || shard == "." || shard == "..")
      return fail("json-invalid", fmt::format("weight_map: expected the name of a file in the folder, got {}", Json(shard).dump()),
                  index.string());
    CULPRIT_CHECK(tensors.add_file(folder / shard));
  }
  for (const auto& [name, file] : files)
    if (!tensors.contains(name)) return tensors.unsupported(fmt::format("tensor {} is not in {}, as {} says", name, file, kHfIndexFile));
  return tensors;
}

Result<Weight> HfTensors::stacked(const WeightSpec& spec, const HfConfig& config, std::vector<std::string>& used) const {
  Weight all;
  const auto hole = spec.hf.find('*');
  for (std::int64_t expert = 0; expert < spec.shape[0]; ++expert) {
    auto pattern = spec.hf;
    const auto name = spelled(pattern.replace(hole, 1, std::to_string(expert)));
    CULPRIT_TRY(const auto one, weight(name, config));
    if (one.quantized() || one.shape() != Shape(spec.shape.begin() + 1, spec.shape.end()))
      return unsupported(fmt::format("tensor {}: expected one expert's dense weight of shape {}, got {} of shape {}", name,
                                     to_string(Shape(spec.shape.begin() + 1, spec.shape.end())), one.source_type, to_string(one.shape())));
    if (expert == 0) {
      all.source_type = one.source_type;
      all.dense = Tensor::zeros(one.dense.dtype(), spec.shape);
    }
    if (one.dense.dtype() != all.dense.dtype())
      return unsupported(fmt::format("tensor {}: expected dtype {} as of the other experts, got {}", name, name_of(all.dense.dtype()),
                                     name_of(one.dense.dtype())));
    const auto bytes = one.dense.contiguous_bytes();
    std::ranges::copy(bytes, all.dense.mutable_bytes().begin() + static_cast<std::ptrdiff_t>(bytes.size()) * expert);
    used.push_back(name);
  }
  return all;
}

Result<Weight> HfTensors::weight(const WeightSpec& spec, const HfConfig& config, std::vector<std::string>& used) const {
  const auto whole = spec.mlx.empty() ? std::string() : spelled(spec.mlx);
  const bool has_whole = contains(whole);
  if (!has_whole && spec.hf.find('*') != std::string::npos) return stacked(spec, config, used);
  const auto name = has_whole ? whole : spelled(spec.hf);
  if (!contains(name))
    return unsupported(fmt::format("tensor {}: expected shape {}, but there is no such tensor", name, to_string(spec.shape)));
  CULPRIT_TRY(auto weight, this->weight(name, config));
  used.push_back(name);
  if (weight.quantized()) {
    for (auto& part : quantized_parts(name)) used.push_back(std::move(part));
    if (!has_whole && spec.parts > 1) return unsupported(fmt::format("tensor {}: expected a dense one to take a part of", name));
  } else if (!has_whole && spec.parts > 1) {
    auto shape = spec.shape;
    shape[1] *= spec.parts;
    if (weight.shape() != shape)
      return unsupported(fmt::format("tensor {}: expected shape {}, got {}", name, to_string(shape), to_string(weight.shape())));
    weight.dense = weight.dense.sliced(1, spec.part * spec.shape[1], (spec.part + 1) * spec.shape[1]).contiguous();
  } else if (!spec.hf_shape.empty() && without_ones(weight.shape()) == without_ones(spec.shape)) {
    weight.dense = weight.dense.contiguous().reshaped(spec.shape);
  }
  if (weight.shape() != spec.shape)
    return unsupported(fmt::format("tensor {}: expected shape {}, got {}", name, to_string(spec.shape), to_string(weight.shape())));
  return weight;
}

std::string HfTensors::spelled(const std::string& name) const {
  if (!in_wrapper_ || contains(name)) return name;
  constexpr std::string_view kModel = "model.";
  if (name.starts_with(kModel))
    if (auto spelling = "model.language_model." + name.substr(kModel.size()); contains(spelling)) return spelling;
  auto spelling = "language_model." + name;
  return contains(spelling) ? spelling : name;
}

bool HfTensors::is_beside_text(std::string_view name) const {
  constexpr std::string_view kModel = "model.";
  if (name.starts_with(kModel)) name.remove_prefix(kModel.size());
  return in_wrapper_ &&
         std::ranges::any_of(std::initializer_list<std::string_view>{"vision_tower.", "audio_tower.", "multi_modal_projector.",
                                                                     "embed_vision.", "embed_audio.", "visual.", "mtp."},
                             [&](std::string_view part) { return name.starts_with(part); });
}

std::vector<std::string> quantized_parts(const std::string& name) {
  const auto stem = stem_of(name);
  return {stem + ".scales", stem + ".biases"};
}

Result<Weight> HfTensors::weight(const std::string& name, const HfConfig& config) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return unsupported(fmt::format("there is no tensor {}", name));
  Weight weight;
  const auto stem = stem_of(name);
  if (!name.ends_with(kWeightSuffix) || !tensors_.contains(stem + ".scales")) {
    if (!is_float(found->second.dtype()))
      return unsupported(fmt::format("tensor {}: expected a float dtype, got {}", name, name_of(found->second.dtype())));
    weight.dense = found->second;
    weight.source_type = name_of(weight.dense.dtype());
    return weight;
  }
  CULPRIT_TRY(const auto affine, read_affine(config, stem));
  weight.bits = affine.bits;
  weight.group = affine.group;
  weight.packed = found->second;
  weight.scales = tensors_.at(stem + ".scales");
  if (!tensors_.contains(stem + ".biases")) return unsupported(fmt::format("there is no tensor {}.biases", stem));
  weight.biases = tensors_.at(stem + ".biases");
  const auto& packed = weight.packed;
  auto groups = packed.shape();
  if (!groups.empty()) groups.back() = groups.back() * 32 / (affine.group * affine.bits);
  const bool fits = packed.dtype() == DType::u32 && (packed.rank() == 2 || packed.rank() == 3) && is_float(weight.scales.dtype()) &&
                    weight.biases.dtype() == weight.scales.dtype() && weight.biases.shape() == weight.scales.shape() &&
                    weight.scales.shape() == groups && groups.back() * affine.group * affine.bits == packed.dim(-1) * 32;
  if (!fits)
    return unsupported(fmt::format("{}: weight {} {}, scales {} {} and biases {} {} are no {}-bit values in groups of {}", stem,
                                   name_of(packed.dtype()), to_string(packed.shape()), name_of(weight.scales.dtype()),
                                   to_string(weight.scales.shape()), name_of(weight.biases.dtype()), to_string(weight.biases.shape()),
                                   affine.bits, affine.group));
  weight.source_type = fmt::format("affine {}-bit, groups of {}", weight.bits, weight.group);
  return weight;
}

}  // namespace culprit
