// Qwen 3 with experts: the qwen3 graph, and in most layers a router that sends each token to a few of many MLPs.
#include "decode/architectures/decoder.h"
#include "decode/architectures/hf_config.h"
#include "decode/architectures/hf_experts.h"
#include "decode/model.h"

namespace culprit {
namespace {
constexpr auto kWeights = decoder::hf_only(
    decoder::weights_with(decoder::kMlpNorm, decoder::kQNorm, decoder::kKNorm,
                          WeightEntry{.role = "router", .gguf = "", .hf = "model.layers.{}.mlp.gate.weight", .shape = decoder::router},
                          WeightEntry{.role = "expert_gate",
                                      .gguf = "",
                                      .hf = "model.layers.{}.mlp.experts.*.gate_proj.weight",
                                      .shape = decoder::expert_in,
                                      .mlx = "model.layers.{}.mlp.switch_mlp.gate_proj.weight"},
                          WeightEntry{.role = "expert_up",
                                      .gguf = "",
                                      .hf = "model.layers.{}.mlp.experts.*.up_proj.weight",
                                      .shape = decoder::expert_in,
                                      .mlx = "model.layers.{}.mlp.switch_mlp.up_proj.weight"},
                          WeightEntry{.role = "expert_down",
                                      .gguf = "",
                                      .hf = "model.layers.{}.mlp.experts.*.down_proj.weight",
                                      .shape = decoder::expert_out,
                                      .mlx = "model.layers.{}.mlp.switch_mlp.down_proj.weight"}));

std::vector<Node> nodes_of(const Facts& facts) { return decoder::nodes(facts, {.qk_norm = true}); }

Result<Facts> read_hf(const HfConfig& config) {
  CULPRIT_TRY(auto facts, read_facts(config, kQwen3Moe.name, {.head_channels = 0}));
  CULPRIT_CHECK(read_qwen_window(config, facts));
  CULPRIT_TRY(facts.experts, read_experts(config, {.count = 128, .used = 8, .hidden = 768, .normalised = false}));
  return facts;
}

Json write_hf(const Facts& facts) {
  auto config = write_facts(facts, kQwen3Moe.hf_type, kQwen3Moe.hf_class);
  write_qwen_window(facts, config);
  write_experts(*facts.experts, config);
  return config;
}

Facts tiny() {
  auto facts = tiny_llama_facts();
  facts.architecture = kQwen3Moe.name;
  facts.head_channels = facts.rope.dims = 12;
  facts.experts = ExpertFacts{.count = 7, .used = 3, .hidden = 20, .dense_layers = {1}};
  return facts;
}
}  // namespace

const Architecture kQwen3Moe = {.name = "qwen3_moe",
                                .hf_type = "qwen3_moe",
                                .hf_class = "Qwen3MoeForCausalLM",
                                .read_gguf = nullptr,
                                .read_hf = read_hf,
                                .write_hf = write_hf,
                                .tiny = tiny,
                                .nodes = nodes_of,
                                .weights = kWeights,
                                .gguf_others = {}};

}  // namespace culprit
