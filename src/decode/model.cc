#include "decode/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "decode/architecture.h"
#include "decode/hf_folder.h"
#include "decode/model_folder.h"
#include "decode/model_weights.h"
#include "format/safetensors.h"

namespace culprit {
namespace {
tl::unexpected<Error> missing_tensor(const std::string& name, const Shape& expected, const std::filesystem::path& path) {
  return fail("model-unsupported", fmt::format("tensor {}: expected shape {}, but there is no such tensor", name, to_string(expected)),
              path.string());
}
Result<void> check_shape(const std::string& name, const Shape& expected, const Shape& actual, const std::filesystem::path& path) {
  if (expected == actual) return {};
  return fail("model-unsupported", fmt::format("tensor {}: expected shape {}, got {}", name, to_string(expected), to_string(actual)),
              path.string());
}

/// A tensor that the graph does not use would change what the model means (a bias, an expert): refused rather than ignored.
tl::unexpected<Error> no_place(const std::string& tensor, std::string_view architecture, const std::filesystem::path& path) {
  return fail("model-unsupported", fmt::format("tensor {} has no place in the {} graph", tensor, architecture), path.string());
}

Result<void> check_no_others(const Gguf& file, const Architecture& architecture, const std::map<std::string, std::string>& names) {
  std::set<std::string_view> known(architecture.gguf_others.begin(), architecture.gguf_others.end());
  for (const auto& [canonical, checkpoint] : names) known.insert(checkpoint);
  for (const auto& tensor : file.tensors())
    if (!known.contains(tensor.name)) return no_place(tensor.name, architecture.name, file.path());
  return {};
}

/// Old checkpoints hold what rope_theta says as a table as well. A head beside a tied embedding must be the embedding, or engines differ in
/// which of them they take.
Result<void> check_no_others(const HfTensors& file, const HfConfig& config, const Facts& facts, std::set<std::string> known,
                             const std::filesystem::path& path) {
  const std::string head = file.spelled("lm_head.weight");
  if (facts.tied_head && file.contains(head)) {
    CULPRIT_TRY(const auto weight, file.weight(head, config));
    CULPRIT_TRY(const auto embedding, file.weight(file.spelled("model.embed_tokens.weight"), config));
    if (weight.shape() != embedding.shape() || weight.hash_f32() != embedding.hash_f32())
      return config.unsupported("tie_word_embeddings", fmt::format("the head is tied, but {} is not the embedding", head));
    known.insert(head);
    for (const auto& part : quantized_parts(head)) known.insert(part);
  }
  for (const auto& [name, tensor] : file.all())
    if (!known.contains(name) && !name.ends_with(".rotary_emb.inv_freq") && !file.is_beside_text(name))
      return no_place(name, facts.architecture, path);
  return {};
}

std::string printable(std::string_view text) {
  constexpr std::size_t kBytesMax = 32;
  std::string result(text.substr(0, kBytesMax));
  for (char& c : result)
    if (c < ' ' || c > '~') c = '?';
  return result;
}
}  // namespace

Result<Model> Model::open(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (!std::filesystem::exists(status)) return fail("model-missing", "there is no such file or folder", path.string());
  if (!std::filesystem::is_directory(status)) return open_gguf(path);
  if (std::filesystem::exists(path / kHfConfigFile, ignored)) return open_hf(path);
  if (std::filesystem::exists(path / kModelFactsFile, ignored)) return open_folder(path);
  return fail("model-missing", fmt::format("the folder has neither {} nor {}", kHfConfigFile, kModelFactsFile), path.string());
}

Result<Model> Model::open_gguf(const std::filesystem::path& path) {
  CULPRIT_TRY(auto file, Gguf::open(path));
  CULPRIT_TRY(const auto name, file.text("general.architecture"));
  const auto* architecture = find_architecture(name);
  if (architecture == nullptr || architecture->read_gguf == nullptr)
    return fail("model-unsupported", fmt::format("there is no graph for the architecture {}", printable(name)), path.string());
  CULPRIT_TRY(auto facts, architecture->read_gguf(file));
  // A graph is as long as the facts say: no longer than a file with so many tensors can need.
  if (static_cast<std::size_t>(facts.layers) > file.tensors().size())
    return fail("model-unsupported", fmt::format("{} layers, but the file has {} tensors", facts.layers, file.tensors().size()),
                path.string());
  if (facts.vocabulary == 0) return fail("model-unsupported", "there is no tensor token_embd.weight", path.string());
  if (auto fit = check_facts(facts); !fit) return fail(fit.error().id, fit.error().message, path.string());

  Model model;
  model.path_ = path;
  model.kind_ = "gguf";
  model.graph_ = std::make_shared<const Graph>(std::move(facts));
  for (auto& spec : model_weights(*model.graph_)) {
    const auto* tensor = file.find(spec.gguf);
    if (tensor == nullptr) return missing_tensor(spec.gguf, spec.shape, path);
    CULPRIT_CHECK(check_shape(spec.gguf, spec.shape, tensor->shape, path));
    model.weight_names_.push_back(spec.canonical);
    model.checkpoint_names_.emplace(std::move(spec.canonical), std::move(spec.gguf));
  }
  CULPRIT_CHECK(check_no_others(file, *architecture, model.checkpoint_names_));
  model.gguf_ = std::make_shared<const Gguf>(std::move(file));
  return model;
}

Result<Model> Model::open_hf(const std::filesystem::path& path) {
  CULPRIT_TRY(const auto config, read_hf_config(path));
  CULPRIT_TRY(auto facts, read_hf_facts(config));
  CULPRIT_TRY(const auto file, HfTensors::open(path, is_hf_wrapper(config)));
  if (static_cast<std::size_t>(facts.layers) > file.all().size())
    return config.unsupported("num_hidden_layers", fmt::format("{} layers, but there are {} tensors", facts.layers, file.all().size()));
  if (const auto* architecture = find_architecture(facts.architecture); architecture != nullptr && architecture->adapt != nullptr)
    architecture->adapt(file, facts);
  if (auto fit = check_facts(facts); !fit) return fail(fit.error().id, fit.error().message, config.file().string());
  Model model;
  model.path_ = path;
  model.kind_ = "hf";
  model.graph_ = std::make_shared<const Graph>(std::move(facts));
  std::map<std::string, Weight> weights;
  std::set<std::string> known;
  for (auto& spec : model_weights(*model.graph_)) {
    std::vector<std::string> used;
    CULPRIT_TRY(auto weight, file.weight(spec, config, used));
    weights.emplace(spec.canonical, std::move(weight));
    model.weight_names_.push_back(spec.canonical);
    auto name = spec.hf.find('*') == std::string::npos ? used[0] : spec.hf;
    if (spec.parts > 1 && used[0] != spec.mlx) name += fmt::format(" (part {} of {})", spec.part + 1, spec.parts);
    model.checkpoint_names_.emplace(std::move(spec.canonical), std::move(name));
    known.insert(used.begin(), used.end());
  }
  for (const auto& unused : unused_hf_weights(*model.graph_)) {
    known.insert(file.spelled(unused));
    for (auto& part : quantized_parts(file.spelled(unused))) known.insert(std::move(part));
  }
  CULPRIT_CHECK(check_no_others(file, config, model.facts(), std::move(known), path));
  model.weights_ = std::make_shared<const std::map<std::string, Weight>>(std::move(weights));
  return model;
}

Result<Model> Model::open_folder(const std::filesystem::path& path) {
  CULPRIT_TRY(auto facts, read_model_facts(path / kModelFactsFile));
  CULPRIT_TRY(const auto file, Safetensors::open(path / kModelTensorsFile));
  if (static_cast<std::size_t>(facts.layers) > file.names().size())
    return fail("model-unsupported", fmt::format("{} layers, but the file has {} tensors", facts.layers, file.names().size()),
                path.string());
  Model model;
  model.path_ = path;
  model.kind_ = "folder";
  model.graph_ = std::make_shared<const Graph>(std::move(facts));
  std::map<std::string, Weight> weights;
  for (auto& spec : model_weights(*model.graph_)) {
    if (!file.contains(spec.canonical)) return missing_tensor(spec.canonical, spec.shape, path);
    CULPRIT_TRY(auto tensor, file.tensor(spec.canonical));
    CULPRIT_CHECK(check_shape(spec.canonical, spec.shape, tensor.shape(), path));
    if (!is_float(tensor.dtype()))
      return fail("model-unsupported", fmt::format("tensor {}: expected a float dtype, got {}", spec.canonical, name_of(tensor.dtype())),
                  path.string());
    Weight weight;
    weight.source_type = name_of(tensor.dtype());
    weight.dense = std::move(tensor);
    weights.emplace(spec.canonical, std::move(weight));
    model.weight_names_.push_back(spec.canonical);
    model.checkpoint_names_.emplace(spec.canonical, spec.canonical);
  }
  model.weights_ = std::make_shared<const std::map<std::string, Weight>>(std::move(weights));
  return model;
}

std::string Model::checkpoint_name(const std::string& canonical) const {
  const auto found = checkpoint_names_.find(canonical);
  return found == checkpoint_names_.end() ? std::string() : found->second;
}

std::string Model::canonical_name(const std::string& checkpoint) const {
  const auto found =
      std::find_if(checkpoint_names_.begin(), checkpoint_names_.end(), [&](const auto& pair) { return pair.second == checkpoint; });
  return found == checkpoint_names_.end() ? std::string() : found->first;
}

Result<Weight> Model::weight(const std::string& canonical, const GgufReadFault& fault) const {
  const auto name = checkpoint_name(canonical);
  if (name.empty()) return fail("model-unsupported", fmt::format("the graph has no weight {}", canonical), path_.string());
  if (gguf_) return gguf_->weight(name, fault);
  return weights_->at(canonical);
}

}  // namespace culprit
