// Mistral: the llama graph, with a window on every layer where the config has one. In GGUF it is a llama.
#include "decode/architectures/decoder.h"
#include "decode/architectures/hf_config.h"
#include "decode/model.h"

namespace culprit {
namespace {
constexpr WeightEntry kWeights[] = {
    {"embed", "", "model.embed_tokens.weight", decoder::vocabulary_by_hidden},
    {"attn_norm", "", "model.layers.{}.input_layernorm.weight", decoder::hidden},
    {"q", "", "model.layers.{}.self_attn.q_proj.weight", decoder::q},
    {"k", "", "model.layers.{}.self_attn.k_proj.weight", decoder::kv},
    {"v", "", "model.layers.{}.self_attn.v_proj.weight", decoder::kv},
    {"attn_out", "", "model.layers.{}.self_attn.o_proj.weight", decoder::attn_out},
    {"mlp_norm", "", "model.layers.{}.post_attention_layernorm.weight", decoder::hidden},
    {"mlp_gate", "", "model.layers.{}.mlp.gate_proj.weight", decoder::mlp_in},
    {"mlp_up", "", "model.layers.{}.mlp.up_proj.weight", decoder::mlp_in},
    {"mlp_down", "", "model.layers.{}.mlp.down_proj.weight", decoder::mlp_out},
    {"final_norm", "", "model.norm.weight", decoder::hidden},
    {"logits", "", "lm_head.weight", decoder::vocabulary_by_hidden},
};

std::vector<Node> nodes_of(const Facts& facts) { return decoder::nodes(facts, {}); }

Result<Facts> read_hf(const HfConfig& config) {
  CULPRIT_TRY(auto facts, read_facts(config, kMistral.name, {}));
  CULPRIT_TRY(const int window, config.count("sliding_window", 0));
  if (!config.has("layer_types")) facts.window = window;  // every layer slides
  CULPRIT_CHECK(read_layer_types(config, window, facts));
  return facts;
}

Json write_hf(const Facts& facts) {
  auto config = write_facts(facts, kMistral.hf_type, kMistral.hf_class);
  config["sliding_window"] = facts.window > 0 ? Json(facts.window) : Json();
  return config;
}

Facts tiny() {
  auto facts = tiny_llama_facts();
  facts.architecture = kMistral.name;
  facts.window = 4;
  return facts;
}
}  // namespace

const Architecture kMistral = {.name = "mistral",
                               .hf_type = "mistral",
                               .hf_class = "MistralForCausalLM",
                               .read_gguf = nullptr,
                               .read_hf = read_hf,
                               .write_hf = write_hf,
                               .tiny = tiny,
                               .nodes = nodes_of,
                               .weights = kWeights,
                               .gguf_others = {}};

}  // namespace culprit
