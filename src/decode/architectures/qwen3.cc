// Qwen 3, dense: the llama graph with norms over the channels of q and k heads, whose size is the config's. In GGUF channels pair as in
// Hugging Face's checkpoints: nothing is permuted.
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
    {"q_norm", "blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight", decoder::head},
    {"k_norm", "blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight", decoder::head},
    {"attn_out", "blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight", decoder::attn_out},
    {"mlp_norm", "blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight", decoder::hidden},
    {"mlp_gate", "blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight", decoder::mlp_in},
    {"mlp_up", "blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight", decoder::mlp_in},
    {"mlp_down", "blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight", decoder::mlp_out},
    {"final_norm", "output_norm.weight", "model.norm.weight", decoder::hidden},
    {"logits", "output.weight", "lm_head.weight", decoder::vocabulary_by_hidden},
};

std::vector<Node> nodes_of(const Facts& facts) { return decoder::nodes(facts, {.qk_norm = true}); }

Result<Facts> read_gguf(const Gguf& file) { return gguf::read_facts(file, kQwen3.name, RopePairing::half); }

Result<Facts> read_hf(const HfConfig& config) {
  CULPRIT_TRY(auto facts, read_facts(config, kQwen3.name, {.head_channels = 128}));
  CULPRIT_CHECK(read_qwen_window(config, facts));
  return facts;
}

Json write_hf(const Facts& facts) {
  auto config = write_facts(facts, kQwen3.hf_type, kQwen3.hf_class);
  config["use_sliding_window"] = facts.window > 0;
  config["sliding_window"] = facts.window > 0 ? Json(facts.window) : Json();
  config["max_window_layers"] = facts.window > 0 ? 0 : facts.layers;
  return config;
}

Facts tiny() {
  auto facts = tiny_llama_facts();
  facts.architecture = kQwen3.name;
  facts.head_channels = facts.rope.dims = 12;
  facts.tied_head = true;
  return facts;
}
}  // namespace

const Architecture kQwen3 = {.name = "qwen3",
                             .hf_type = "qwen3",
                             .hf_class = "Qwen3ForCausalLM",
                             .read_gguf = read_gguf,
                             .read_hf = read_hf,
                             .write_hf = write_hf,
                             .tiny = tiny,
                             .nodes = nodes_of,
                             .weights = kWeights,
                             .gguf_others = {}};

}  // namespace culprit
