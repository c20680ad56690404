// Qwen 2 and 2.5: the llama graph with biases on q, k and v. In GGUF channels pair as in Hugging Face's checkpoints: nothing is permuted.
#include "decode/architectures/decoder.h"
#include "decode/architectures/gguf_facts.h"
#include "decode/architectures/hf_config.h"
#include "decode/model.h"

namespace culprit {
namespace {
constexpr auto kWeights = decoder::weights_with(
    decoder::kMlpNorm, WeightEntry{"q_bias", "blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias", decoder::q_bias},
    WeightEntry{"k_bias", "blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias", decoder::kv_bias},
    WeightEntry{"v_bias", "blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias", decoder::kv_bias});

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
  write_qwen_window(facts, config);
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
