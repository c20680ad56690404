// Qwen 2 and 2.5: the llama graph with biases on q, k and v. In GGUF channels pair as in Hugging Face's checkpoints: nothing is permuted.
#include "decode/architectures/decoder.h"
#include "decode/architectures/gguf_facts.h"
#include "decode/architectures/hf_config.h"
#include "decode/model.h"

namespace culprit {
namespace {
constexpr WeightEntry kWeights[] = {
    {"embed", "token_embd.weight", "model.embed_tokens.weight", decoder::vocabulary_by_hidden},
    {"attn_norm", "blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight", decoder::hidden},
    {"q", "blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight", decoder::q},
    {"k", "blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight", decoder::kv},
    {"v", "blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight", decoder::kv},
    {"q_bias", "blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias", decoder::q_bias},
    {"k_bias", "blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias", decoder::kv_bias},
    {"v_bias", "blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias", decoder::kv_bias},
    {"attn_out", "blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight", decoder::attn_out},
    {"mlp_norm", "blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight", decoder::hidden},
    {"mlp_gate", "blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight", decoder::mlp_in},
    {"mlp_up", "blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight", decoder::mlp_in},
    {"mlp_down", "blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight", decoder::mlp_out},
    {"final_norm", "output_norm.weight", "model.norm.weight", decoder::hidden},
    {"logits", "output.weight", "lm_head.weight", decoder::vocabulary_by_hidden},
};

std::vector<Node> nodes_of(const Facts& facts) { return decoder::nodes(facts, {.qkv_bias = true}); }

Result<Facts> read_gguf(const Gguf& file) { return gguf::read_facts(file, kQwen2.name, RopePairing::half); }

Result<Facts> read_hf(const HfConfig& config) {
  CULPRIT_TRY(auto facts, read_facts(config, kQwen2.name, {}));
  CULPRIT_CHECK(read_qwen_window(config, facts));
  return facts;
}

Json write_hf(const Facts& facts) {
  auto config = write_facts(facts, kQwen2.hf_type, kQwen2.hf_class);
  config.erase("attention_bias");  // its biases are no choice
  config["use_sliding_window"] = facts.window > 0;
  config["sliding_window"] = facts.window > 0 ? Json(facts.window) : Json();
  config["max_window_layers"] = facts.window > 0 ? 0 : facts.layers;
  return config;
}

Facts tiny() {
  auto facts = tiny_llama_facts();
  facts.architecture = kQwen2.name;
  return facts;
}
}  // namespace

const Architecture kQwen2 = {.name = "qwen2",
                             .hf_type = "qwen2",
                             .hf_class = "Qwen2ForCausalLM",
                             .read_gguf = read_gguf,
                             .read_hf = read_hf,
                             .write_hf = write_hf,
                             .tiny = tiny,
                             .nodes = nodes_of,
                             .weights = kWeights,
                             .gguf_others = {}};

}  // namespace culprit
