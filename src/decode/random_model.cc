// Random checkpoints that are the same on every platform: integers and correctly rounded operations only.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <set>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "decode/affine_groups.h"
#include "decode/architecture.h"
#include "decode/hf_folder.h"
#include "decode/model.h"
#include "decode/model_folder.h"
#include "decode/model_weights.h"
#include "format/safetensors.h"

namespace culprit {
namespace {
/// Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators, 2014.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// Nearly normal with mean 0 and variance 1: the sum of 12 uniforms, which needs no logarithm of the platform's.
  double normal() {
    double sum = -6;
    for (int i = 0; i < 6; ++i) {
      const auto bits = next();
      sum += static_cast<double>(bits >> 32) * 0x1p-32 + static_cast<double>(bits & 0xffffffffu) * 0x1p-32;
    }
    return sum;
  }

 private:
  std::uint64_t state_;
};

/// FNV-1a, so that each tensor has its own numbers whatever the others are.
std::uint64_t hash_of(const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001b3u;
  return hash;
}

Tensor random_weight(const WeightSpec& spec, std::uint64_t seed, bool looked_up) {
  SplitMix64 mixer(seed);
  SplitMix64 random(mixer.next() ^ hash_of(spec.canonical));
  std::vector<double> values(static_cast<std::size_t>(element_count(spec.shape)));
  const bool vector = spec.shape.size() == 1;
  // What a norm multiplies by lies around 1, as trained weights do; a table that is only looked up has no fan-in.
  const double mean = vector && !spec.is_bias && !spec.unit_offset ? 1 : 0;
  const double scale = vector ? 0.125 : looked_up ? 1 : 1 / std::sqrt(static_cast<double>(spec.shape.back()));
  for (double& value : values) value = mean + scale * random.normal();
  return Tensor::from_values(DType::f32, spec.shape, values);
}
}  // namespace

Facts tiny_llama_facts() {
  Facts facts;
  facts.architecture = "llama";
  facts.layers = 3;
  facts.hidden = 48;
  facts.heads = 6;
  facts.kv_heads = 3;
  facts.head_channels = 8;
  facts.mlp_hidden = 80;
  facts.vocabulary = 97;
  facts.context = 8192;
  facts.rope.dims = 8;
  return facts;
}

Facts small_facts(Facts tiny) {
  auto& facts = tiny;
  facts.layers = 6;
  facts.hidden = 256;
  facts.heads = 8;
  facts.kv_heads = 4;
  facts.head_channels *= 4;
  facts.mlp_hidden = 688;
  facts.vocabulary = 2048;
  if (facts.query_pre_attn_scalar != 1) facts.query_pre_attn_scalar *= 4;  // 1: scores are not scaled
  if (facts.window > 0) facts.window = 64;
  facts.rope.dims *= 4;
  if (facts.rope_local) facts.rope_local->dims *= 4;
  if (facts.experts) {
    facts.experts->count = 32;
    facts.experts->used = 4;
    facts.experts->hidden = 96;
    if (facts.experts->shared_hidden > 0) facts.experts->shared_hidden = 160;
  }
  if (facts.delta) {
    facts.delta->key_channels *= 4;
    facts.delta->value_channels *= 4;
  }
  facts.rope.rotated *= 4;
  facts.full_head_channels *= 4;
  facts.per_layer_channels *= 4;
  return tiny;
}

namespace {
using Tensors = std::vector<std::pair<std::string, Tensor>>;

Result<void> make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return fail("file-write", fmt::format("cannot make the folder: {}", error.message()), folder.string(), error.value());
  return {};
}

Tensor weight_of(const WeightSpec& weight, const RandomModel& spec) {
  return random_weight(weight, spec.seed,
                       (weight.canonical == "w.embed" && !spec.facts.tied_head) || weight.canonical == "w.per_layer_embed");
}

/// A weight as Hugging Face's checkpoints have it: one tensor for each expert, or two weights behind each other in one.
void add_hf_tensors(const WeightSpec& weight, Tensor tensor, Tensors& tensors) {
  if (const auto hole = weight.hf.find('*'); hole != std::string::npos) {
    for (std::int64_t expert = 0; expert < tensor.dim(0); ++expert) {
      auto name = weight.hf;
      const auto one = tensor.sliced(0, expert, expert + 1).reshaped(Shape(weight.shape.begin() + 1, weight.shape.end()));
      tensors.emplace_back(name.replace(hole, 1, std::to_string(expert)), one.contiguous());
    }
    return;
  }
  if (!weight.hf_shape.empty()) tensor = tensor.reshaped(weight.hf_shape);
  if (weight.parts == 1) {
    tensors.emplace_back(weight.hf, std::move(tensor));
    return;
  }
  auto found = std::ranges::find(tensors, weight.hf, &Tensors::value_type::first);
  if (found == tensors.end()) {
    auto shape = weight.shape;
    shape[1] *= weight.parts;
    tensors.emplace_back(weight.hf, Tensor::zeros(tensor.dtype(), shape));
    found = std::prev(tensors.end());
  }
  const auto bytes = tensor.contiguous_bytes();
  const auto block = bytes.size() / static_cast<std::size_t>(tensor.dim(0));  // one expert's
  for (std::size_t expert = 0; expert < static_cast<std::size_t>(tensor.dim(0)); ++expert)
    std::copy_n(
        bytes.begin() + static_cast<std::ptrdiff_t>(expert * block), block,
        found->second.mutable_bytes().begin() +
            static_cast<std::ptrdiff_t>((expert * static_cast<std::size_t>(weight.parts) + static_cast<std::size_t>(weight.part)) * block));
}

/// Canonical names of the weights that `spec` wants quantised: of linear layers, and of experts where MLX has one tensor for all.
std::set<std::string> quantised_weights(const Graph& graph, const RandomModel& spec) {
  std::set<std::string> names;
  if (spec.bits == 0) return names;
  std::set<std::string> linear, expert;
  for (const auto& node : graph.nodes()) {
    if (node.op == Op::linear) linear.insert(node.weight);
    if (node.op == Op::expert_linear) expert.insert(node.weight);
  }
  for (const auto& weight : model_weights(graph)) {
    const bool is_linear = linear.contains(weight.canonical) && weight.shape.size() == 2 && weight.parts == 1 && weight.hf_shape.empty();
    const bool is_expert = expert.contains(weight.canonical) && !weight.mlx.empty();
    if ((is_linear || is_expert) && weight.shape.back() % kRandomModelGroup == 0) names.insert(weight.canonical);
  }
  return names;
}

void add_quantised_tensors(const WeightSpec& weight, const Tensor& values, int bits, Tensors& tensors) {
  auto groups = quantise_groups(values, {.kind = CacheKind::quantized, .bits = bits, .group = kRandomModelGroup});
  const auto& name = weight.shape.size() == 3 ? weight.mlx : weight.hf;
  const auto parts = quantized_parts(name);
  tensors.emplace_back(name, std::move(groups.packed));
  tensors.emplace_back(parts[0], std::move(groups.scales));
  tensors.emplace_back(parts[1], std::move(groups.biases));
}
}  // namespace

// The facts last: a folder is a model only once they are there.
Result<void> write_random_model(const std::filesystem::path& folder, const RandomModel& spec) {
  CULPRIT_CHECK(make_folder(folder));
  Tensors tensors;
  for (const auto& weight : model_weights(Graph(spec.facts))) tensors.emplace_back(weight.canonical, weight_of(weight, spec));
  CULPRIT_CHECK(write_safetensors(folder / kModelTensorsFile, tensors));
  return write_model_facts(folder / kModelFactsFile, spec.facts);
}

Result<void> write_random_hf_model(const std::filesystem::path& folder, const RandomModel& spec) {
  const Graph graph(spec.facts);
  const auto packed = quantised_weights(graph, spec);
  if (spec.bits != 0 && packed.empty())
    return fail("model-unsupported",
                fmt::format("no linear layer of it has rows of whole groups of {}, so none can be quantised to {} bits", kRandomModelGroup,
                            spec.bits));
  CULPRIT_CHECK(make_folder(folder));
  Tensors tensors;
  for (const auto& weight : model_weights(graph)) {
    if (packed.contains(weight.canonical))
      add_quantised_tensors(weight, weight_of(weight, spec), spec.bits, tensors);
    else
      add_hf_tensors(weight, weight_of(weight, spec), tensors);
  }
  CULPRIT_CHECK(write_safetensors(folder / kHfTensorsFile, tensors, {{"format", "pt"}}));
  auto config = find_architecture(spec.facts.architecture)->write_hf(spec.facts);
  if (spec.bits != 0) config["quantization"] = {{"group_size", kRandomModelGroup}, {"bits", spec.bits}};
  return write_file_whole(folder / kHfConfigFile, config.dump(2) + "\n");
}

}  // namespace culprit
