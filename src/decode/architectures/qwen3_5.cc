// Qwen 3.5, text: every fourth layer is attention with QK-norm, a rotation of a part of each head, and a gate on its output; the others are a
// gated delta rule. Dense, or with experts and one that all tokens share. Norms multiply by weight + 1, but for the one inside the delta
// rule.
#include <fmt/format.h>

#include <algorithm>

#include "base/fields.h"
#include "decode/architectures/decoder.h"
#include "decode/architectures/hf_config.h"
#include "decode/architectures/hf_experts.h"
#include "decode/hf_folder.h"
#include "decode/model.h"

namespace culprit {
namespace {
#define DELTA "model.layers.{}.linear_attn."
constexpr WeightEntry kQAndGate = {
    .role = "q_and_gate", .gguf = "", .hf = "model.layers.{}.self_attn.q_proj.weight", .shape = decoder::q_and_gate};
constexpr WeightEntry kDelta[] = {
    {.role = "delta_qkv", .gguf = "", .hf = DELTA "in_proj_qkv.weight", .shape = decoder::delta_qkv},
    {.role = "delta_z", .gguf = "", .hf = DELTA "in_proj_z.weight", .shape = decoder::delta_z},
    {.role = "delta_b", .gguf = "", .hf = DELTA "in_proj_b.weight", .shape = decoder::delta_per_head},
    {.role = "delta_a", .gguf = "", .hf = DELTA "in_proj_a.weight", .shape = decoder::delta_per_head},
    {.role = "delta_conv",
     .gguf = "",
     .hf = DELTA "conv1d.weight",
     .shape = decoder::delta_kernel,
     .hf_shape =
         [](const Facts& f) {
           return Shape{decoder::delta_kernel(f)[0], 1, decoder::delta_kernel(f)[1]};
         }},
    {.role = "delta_decay", .gguf = "", .hf = DELTA "A_log", .shape = decoder::delta_heads},
    {.role = "delta_decay_bias", .gguf = "", .hf = DELTA "dt_bias", .shape = decoder::delta_heads},
    {.role = "delta_norm", .gguf = "", .hf = DELTA "norm.weight", .shape = decoder::delta_norm},
    {.role = "delta_proj", .gguf = "", .hf = DELTA "out_proj.weight", .shape = decoder::delta_proj},
};
#undef DELTA
#define MLP "model.layers.{}.mlp."
constexpr WeightEntry kExperts[] = {
    {.role = "router", .gguf = "", .hf = MLP "gate.weight", .shape = decoder::router},
    {.role = "expert_gate",
     .gguf = "",
     .hf = MLP "experts.gate_up_proj",
     .shape = decoder::expert_in,
     .mlx = MLP "switch_mlp.gate_proj.weight",
     .part = 0,
     .parts = 2},
    {.role = "expert_up",
     .gguf = "",
     .hf = MLP "experts.gate_up_proj",
     .shape = decoder::expert_in,
     .mlx = MLP "switch_mlp.up_proj.weight",
     .part = 1,
     .parts = 2},
    {.role = "expert_down",
     .gguf = "",
     .hf = MLP "experts.down_proj",
     .shape = decoder::expert_out,
     .mlx = MLP "switch_mlp.down_proj.weight"},
    {.role = "shared_gate", .gguf = "", .hf = MLP "shared_expert.gate_proj.weight", .shape = decoder::shared_in},
    {.role = "shared_up", .gguf = "", .hf = MLP "shared_expert.up_proj.weight", .shape = decoder::shared_in},
    {.role = "shared_down", .gguf = "", .hf = MLP "shared_expert.down_proj.weight", .shape = decoder::shared_out},
    {.role = "shared_scale", .gguf = "", .hf = MLP "shared_expert_gate.weight", .shape = decoder::shared_gate},
};
#undef MLP

template <std::size_t kCount, std::size_t kMore>
constexpr auto joined(const std::array<WeightEntry, kCount>& some, const WeightEntry (&more)[kMore]) {
  std::array<WeightEntry, kCount + kMore> all{};
  std::copy(some.begin(), some.end(), all.begin());
  std::copy(std::begin(more), std::end(more), all.begin() + kCount);
  return all;
}
constexpr std::string_view kPlainQ[] = {"q"};
constexpr std::string_view kMlp[] = {"mlp_gate", "mlp_up", "mlp_down"};
constexpr auto kDenseWeights = joined(
    decoder::hf_only(decoder::without(decoder::weights_with(decoder::kMlpNorm, decoder::kQNorm, decoder::kKNorm, kQAndGate), kPlainQ)),
    kDelta);
constexpr auto kExpertWeights = joined(decoder::without(kDenseWeights, kMlp), kExperts);

constexpr double kRotaryShare = 0.25;
constexpr double kRotaryBase = 100000;

std::vector<Node> nodes_of(const Facts& facts) { return decoder::nodes(facts, {.qk_norm = true, .attn_gate = true}); }

/// The layers that are attention, by layer_types or full_attention_interval, which must agree.
Result<int> read_attention_every(const HfConfig& config, int layers) {
  CULPRIT_TRY(const int every, config.count("full_attention_interval", 4));
  const auto* types = config.find("layer_types");
  if (types == nullptr) return every;
  std::vector<std::string> names;
  if (!read_json(*types, names) || names.size() != static_cast<std::size_t>(layers))
    return config.unsupported("layer_types", "expected as many texts as num_hidden_layers");
  Facts facts;
  facts.delta = DeltaFacts{.attention_every = every};
  for (int layer = 0; layer < layers; ++layer)
    if (names[static_cast<std::size_t>(layer)] != (is_delta(facts, layer) ? "linear_attention" : "full_attention"))
      return config.unsupported("layer_types",
                                "layer " + std::to_string(layer) + " contradicts full_attention_interval " + std::to_string(every));
  return every;
}

Result<DeltaFacts> read_delta(const HfConfig& config, int layers) {
  DeltaFacts delta;
  CULPRIT_TRY(delta.key_heads, config.count("linear_num_key_heads", 16));
  CULPRIT_TRY(delta.value_heads, config.count("linear_num_value_heads", 32));
  CULPRIT_TRY(delta.key_channels, config.count("linear_key_head_dim", 128));
  CULPRIT_TRY(delta.value_channels, config.count("linear_value_head_dim", 128));
  CULPRIT_TRY(delta.kernel, config.count("linear_conv_kernel_dim", 4));
  CULPRIT_TRY(delta.attention_every, read_attention_every(config, layers));
  return delta;
}

Result<Facts> read_text(const HfConfig& given, const Architecture& architecture) {
  // The share of a head that is rotated may stand in rope_parameters or beside them; read_facts takes neither.
  CULPRIT_TRY(double share, given.number("partial_rotary_factor", kRotaryShare));
  if (given.has("rope_parameters")) {
    CULPRIT_TRY(const auto parameters, given.object("rope_parameters"));
    const bool is_twice = given.has("partial_rotary_factor") && parameters.has("partial_rotary_factor");
    if (is_twice) CULPRIT_CHECK(given.expect("partial_rotary_factor", *parameters.find("partial_rotary_factor")));
    CULPRIT_TRY(share, parameters.number("partial_rotary_factor", share));
  }
  const auto config = given.without("partial_rotary_factor");
  const bool has_experts = &architecture == &kQwen35Moe;
  CULPRIT_TRY(auto facts, read_facts(config, architecture.name, {.head_channels = 256, .rope_base = kRotaryBase, .has_mlp = !has_experts}));
  const double dims = facts.head_channels * share;
  if (!(dims >= 0 && dims <= facts.head_channels))
    return given.unsupported("partial_rotary_factor", fmt::format("expected a share from 0 to 1, got {}", share));
  facts.rope.dims = static_cast<int>(dims);
  facts.norm_unit_offset = true;
  CULPRIT_TRY(facts.delta, read_delta(config, facts.layers));
  if (!has_experts) return facts;
  CULPRIT_TRY(facts.experts, read_experts(config, {.count = 256, .used = 8, .hidden = 512}));
  CULPRIT_TRY(facts.experts->shared_hidden, config.count("shared_expert_intermediate_size", 512));
  if (facts.mlp_hidden == 0) facts.mlp_hidden = facts.experts->hidden;  // no layer has it
  return facts;
}

Result<Facts> read_hf(const HfConfig& config) { return read_text(config, kQwen35); }
Result<Facts> read_hf_moe(const HfConfig& config) { return read_text(config, kQwen35Moe); }

Json write_text(const Facts& facts, const Architecture& architecture) {
  auto config = write_facts(facts, architecture.hf_type, architecture.hf_class);
  config.erase("rope_theta");
  config.erase("rope_scaling");
  config["rope_parameters"] = {{"rope_type", "default"},
                               {"rope_theta", facts.rope.base},
                               {"partial_rotary_factor", static_cast<double>(facts.rope.dims) / facts.head_channels}};
  config["linear_num_key_heads"] = facts.delta->key_heads;
  config["linear_num_value_heads"] = facts.delta->value_heads;
  config["linear_key_head_dim"] = facts.delta->key_channels;
  config["linear_value_head_dim"] = facts.delta->value_channels;
  config["linear_conv_kernel_dim"] = facts.delta->kernel;
  config["full_attention_interval"] = facts.delta->attention_every;
  config["layer_types"] = Json::array();
  for (int layer = 0; layer < facts.layers; ++layer)
    config["layer_types"].push_back(is_delta(facts, layer) ? "linear_attention" : "full_attention");
  if (!facts.experts) return config;
  write_experts(*facts.experts, config);
  config["shared_expert_intermediate_size"] = facts.experts->shared_hidden;
  return config;
}

Json write_hf(const Facts& facts) { return write_text(facts, kQwen35); }
Json write_hf_moe(const Facts& facts) { return write_text(facts, kQwen35Moe); }

// MLX turns the convolution's weight around, [channel, kernel, 1], and in the same breath adds the 1 to the norms.
void adapt(const HfTensors& tensors, Facts& facts) {
  for (const auto& [name, tensor] : tensors.all())
    if (name.ends_with(".linear_attn.conv1d.weight") && tensor.rank() == 3 && tensor.dim(2) == 1) facts.norm_unit_offset = false;
}

Facts tiny_of(const Architecture& architecture) {
  auto facts = tiny_llama_facts();
  facts.architecture = architecture.name;
  facts.layers = 4;
  facts.head_channels = 24;
  facts.heads = 4;
  facts.kv_heads = 2;
  facts.norm_epsilon = 1e-6;
  facts.norm_unit_offset = true;
  facts.rope.dims = 6;
  facts.rope.base = kRotaryBase;
  facts.delta = DeltaFacts{.key_heads = 2, .value_heads = 6, .key_channels = 8, .value_channels = 12, .kernel = 4, .attention_every = 2};
  return facts;
}
Facts tiny() { return tiny_of(kQwen35); }
Facts tiny_moe() {
  auto facts = tiny_of(kQwen35Moe);
  facts.experts = ExpertFacts{.count = 6, .used = 2, .hidden = 20, .shared_hidden = 28};
  return facts;
}
}  // namespace

const Architecture kQwen35 = {.name = "qwen3_5",
                              .hf_type = "qwen3_5",
                              .hf_class = "Qwen3_5ForCausalLM",
                              .read_gguf = nullptr,
                              .read_hf = read_hf,
                              .write_hf = write_hf,
                              .tiny = tiny,
                              .nodes = nodes_of,
                              .weights = kDenseWeights,
                              .gguf_others = {},
                              .adapt = adapt,
                              .hf_wrapper = "qwen3_5"};
const Architecture kQwen35Moe = {.name = "qwen3_5_moe",
                                 .hf_type = "qwen3_5_moe",
                                 .hf_class = "Qwen3_5MoeForCausalLM",
                                 .read_gguf = nullptr,
                                 .read_hf = read_hf_moe,
                                 .write_hf = write_hf_moe,
                                 .tiny = tiny_moe,
                                 .nodes = nodes_of,
                                 .weights = kExpertWeights,
                                 .gguf_others = {},
                                 .adapt = adapt,
                                 .hf_wrapper = "qwen3_5_moe"};

}  // namespace culprit
