// Gemma 3, text: scaled embedding, norms before and after attention and MLP and over q and k heads, GEGLU, sliding layers with a rotary base
// of their own and every n-th layer full.
#include <cmath>

#include "decode/architectures/decoder.h"
#include "decode/architectures/gguf_facts.h"
#include "decode/architectures/hf_config.h"
#include "decode/model.h"

namespace culprit {
namespace {
constexpr auto kWeights = decoder::weights_with(
    decoder::kQNorm, decoder::kKNorm,
    WeightEntry{"attn_post_norm", "blk.{}.post_attention_norm.weight", "model.layers.{}.post_attention_layernorm.weight", decoder::hidden},
    WeightEntry{"mlp_norm", "blk.{}.ffn_norm.weight", "model.layers.{}.pre_feedforward_layernorm.weight", decoder::hidden},
    WeightEntry{"mlp_post_norm", "blk.{}.post_ffw_norm.weight", "model.layers.{}.post_feedforward_layernorm.weight", decoder::hidden});
constexpr double kLocalBase = 10000;
constexpr int kFullEvery = 6;

std::vector<Node> nodes_of(const Facts& facts) {
  return decoder::nodes(facts, {.scaled_embedding = true, .qk_norm = true, .post_norms = true, .mlp_act = Op::geglu});
}

RopeFacts local_rope(const Facts& facts, double base) {
  RopeFacts rope;
  rope.dims = facts.rope.dims;
  rope.pairing = facts.rope.pairing;
  rope.base = base;
  return rope;
}

// What the file does not say is the same for all sizes, but for the scale of attention: hidden / heads in place of the head's channels in
// the 27B, which is the one with 62 layers. Norm weights are stored with their + 1 added; channels pair as in Hugging Face's checkpoints.
Result<Facts> read_gguf(const Gguf& file) {
  CULPRIT_TRY(auto facts, gguf::read_facts(file, kGemma3.name, RopePairing::half));
  CULPRIT_CHECK(gguf::optional_count(file, "gemma3.attention.sliding_window", facts.window));
  double local_base = kLocalBase;
  CULPRIT_CHECK(gguf::optional_number(file, "gemma3.rope.freq_base_swa", local_base));
  if (facts.window > 0) {
    facts.full_every = kFullEvery;
    facts.rope_local = local_rope(facts, local_base);
  }
  constexpr int kLayersOf27B = 62;
  facts.query_pre_attn_scalar = facts.layers == kLayersOf27B ? facts.hidden / facts.heads : facts.head_channels;
  CULPRIT_CHECK(gguf::optional_number(file, "gemma3.final_logit_softcapping", facts.logit_softcap));
  return facts;
}

Result<Facts> read_hf(const HfConfig& config) {
  CULPRIT_TRY(auto facts, read_facts(config, kGemma3.name,
                                     {.tied_head = true,
                                      .head_channels = 256,
                                      .rope_base = 1e6,
                                      .activation_key = "hidden_activation",
                                      .activation = "gelu_pytorch_tanh"}));
  facts.norm_unit_offset = true;
  CULPRIT_CHECK(config.expect("hidden_act", "gelu_pytorch_tanh"));
  CULPRIT_CHECK(config.expect("use_bidirectional_attention", false));
  if (config.has("attn_logit_softcapping")) return config.unsupported("attn_logit_softcapping", "expected none");
  CULPRIT_TRY(facts.logit_softcap, config.number("final_logit_softcapping", 0));
  CULPRIT_TRY(facts.query_pre_attn_scalar, config.number("query_pre_attn_scalar", 256));
  CULPRIT_TRY(facts.window, config.count("sliding_window", 4096));
  if (facts.window == 0) return config.unsupported("sliding_window", "expected a positive count, got 0");
  CULPRIT_TRY(facts.full_every, config.count("_sliding_window_pattern", kFullEvery));
  CULPRIT_TRY(facts.full_every, config.count("sliding_window_pattern", facts.full_every));
  if (!config.has("sliding_window_pattern") && !config.has("_sliding_window_pattern") && config.has("layer_types")) {
    const int window = facts.window;
    facts.window = facts.full_every = 0;  // layer_types alone says it
    CULPRIT_CHECK(read_layer_types(config, window, facts));
  } else {
    CULPRIT_CHECK(read_layer_types(config, facts.window, facts));
  }
  CULPRIT_TRY(const auto global, read_rope(config, facts.head_channels, 1e6, "full_attention"));
  facts.rope = global;
  CULPRIT_TRY(const double local_base, config.number("rope_local_base_freq", kLocalBase));
  auto local = local_rope(facts, local_base);
  if (const auto* parameters = config.find("rope_parameters"); parameters != nullptr && parameters->contains("sliding_attention")) {
    CULPRIT_TRY(local, read_rope(config, facts.head_channels, kLocalBase, "sliding_attention"));
    if (config.has("rope_local_base_freq")) CULPRIT_CHECK(config.expect("rope_local_base_freq", local.base));
  }
  if (facts.window > 0) facts.rope_local = local;
  return facts;
}

Json write_hf(const Facts& facts) {
  auto config = write_facts(facts, kGemma3.hf_type, kGemma3.hf_class);
  config.erase("hidden_act");
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["query_pre_attn_scalar"] = whole(facts.query_pre_attn_scalar > 0 ? facts.query_pre_attn_scalar : facts.head_channels);
  config["sliding_window"] = facts.window;
  config["sliding_window_pattern"] = facts.full_every;
  config["layer_types"] = layer_types(facts);
  config["rope_local_base_freq"] = facts.rope_local ? facts.rope_local->base : facts.rope.base;
  config["final_logit_softcapping"] = facts.logit_softcap > 0 ? Json(facts.logit_softcap) : Json();
  config["attn_logit_softcapping"] = nullptr;
  return config;
}

Facts tiny() {
  auto facts = tiny_llama_facts();
  facts.architecture = kGemma3.name;
  facts.layers = 4;
  facts.hidden = 64;  // its square root is exact in every dtype: engines that round it to bf16 first agree
  facts.heads = 4;
  facts.kv_heads = 2;
  facts.head_channels = facts.rope.dims = 12;
  facts.norm_epsilon = 1e-6;
  facts.norm_unit_offset = true;
  facts.tied_head = true;
  facts.query_pre_attn_scalar = 24;
  facts.window = 4;
  facts.full_every = 3;
  facts.rope.base = 1e6;
  facts.rope.scaling = RopeScaling::linear;
  facts.rope.factor = 8;
  facts.rope_local = local_rope(facts, kLocalBase);
  return facts;
}
}  // namespace

const Architecture kGemma3 = {.name = "gemma3",
                              .hf_type = "gemma3_text",
                              .hf_class = "Gemma3ForCausalLM",
                              .read_gguf = read_gguf,
                              .read_hf = read_hf,
                              .write_hf = write_hf,
                              .tiny = tiny,
                              .nodes = nodes_of,
                              .weights = kWeights,
                              .gguf_others = {}};

}  // namespace culprit
