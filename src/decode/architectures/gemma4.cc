// Gemma 4, text and dense (E2B, E4B, 31B): Gemma 3's blocks with weights of norms as they are, scores that are not scaled, values that are
// normed too, wider heads in full layers of which only some pairs turn, last layers that read the cache of earlier ones, an input for each
// layer from a second embedding, and a scalar on each block. There is no GGUF form here.
#include <cmath>

#include "decode/architectures/decoder.h"
#include "decode/architectures/hf_config.h"
#include "decode/model.h"

namespace culprit {
namespace {
Shape per_layer_table(const Facts& f) { return {f.vocabulary, std::int64_t{f.layers} * f.per_layer_channels}; }
Shape per_layer_model(const Facts& f) { return {std::int64_t{f.layers} * f.per_layer_channels, f.hidden}; }
Shape per_layer(const Facts& f) { return {f.per_layer_channels}; }
Shape per_layer_gate(const Facts& f) { return {f.per_layer_channels, f.hidden}; }
Shape per_layer_out(const Facts& f) { return {f.hidden, f.per_layer_channels}; }
Shape scalar(const Facts&) { return {1}; }

constexpr auto kWeights = [] {
  auto weights =
      decoder::weights_with(decoder::kQNorm, decoder::kKNorm,
                            WeightEntry{"attn_post_norm", {}, "model.layers.{}.post_attention_layernorm.weight", decoder::hidden},
                            WeightEntry{"mlp_norm", {}, "model.layers.{}.pre_feedforward_layernorm.weight", decoder::hidden},
                            WeightEntry{"mlp_post_norm", {}, "model.layers.{}.post_feedforward_layernorm.weight", decoder::hidden},
                            WeightEntry{"per_layer_embed", {}, "model.embed_tokens_per_layer.weight", per_layer_table},
                            WeightEntry{"per_layer_model", {}, "model.per_layer_model_projection.weight", per_layer_model},
                            WeightEntry{"per_layer_model_norm", {}, "model.per_layer_projection_norm.weight", per_layer},
                            WeightEntry{"per_layer_gate", {}, "model.layers.{}.per_layer_input_gate.weight", per_layer_gate},
                            WeightEntry{"per_layer_out", {}, "model.layers.{}.per_layer_projection.weight", per_layer_out},
                            WeightEntry{"per_layer_post_norm", {}, "model.layers.{}.post_per_layer_input_norm.weight", decoder::hidden},
                            WeightEntry{"layer_scalar", {}, "model.layers.{}.layer_scalar", scalar});
  for (auto& weight : weights) weight.gguf = {};
  return weights;
}();
constexpr double kRopeBase = 10000;

std::vector<Node> nodes_of(const Facts& facts) {
  return decoder::nodes(
      facts, {.scaled_embedding = true, .qk_norm = true, .post_norms = true, .mlp_act = Op::geglu, .v_norm = true, .layer_scalar = true});
}

/// What has other defaults in transformers than in mlx_lm must be there.
Result<void> read_layers(const HfConfig& config, Facts& facts) {
  if (!config.has("layer_types")) return config.unsupported("layer_types", "the key is missing");
  CULPRIT_TRY(const int window, config.count("sliding_window", 0));
  CULPRIT_CHECK(read_layer_types(config, window, facts));
  if (is_sliding(facts, facts.layers - 1))
    return config.unsupported("layer_types", "expected the last layer to be full_attention, which transformers makes it without asking");
  CULPRIT_TRY(facts.full_head_channels, config.count("global_head_dim"));
  if (facts.full_head_channels == 0) facts.full_head_channels = facts.head_channels;
  CULPRIT_TRY(facts.full_value_is_key, config.flag("attention_k_eq_v", false));
  if (facts.full_value_is_key) {
    CULPRIT_TRY(facts.full_kv_heads, config.count("num_global_key_value_heads", 0));
  }
  CULPRIT_TRY(facts.kv_shared_layers, config.count("num_kv_shared_layers"));
  if (facts.kv_shared_layers >= facts.layers)
    return config.unsupported("num_kv_shared_layers", "expected fewer than num_hidden_layers, so that there is a layer to share");
  if (facts.kv_shared_layers > 0) {
    if (!config.has("use_double_wide_mlp")) return config.unsupported("use_double_wide_mlp", "the key is missing");
    CULPRIT_TRY(facts.kv_shared_double_mlp, config.flag("use_double_wide_mlp", false));
  }
  CULPRIT_TRY(facts.per_layer_channels, config.count("hidden_size_per_layer_input"));
  if (facts.per_layer_channels > 0) CULPRIT_CHECK(config.expect("vocab_size_per_layer_input", facts.vocabulary));
  return {};
}

Result<void> read_ropes(const HfConfig& config, Facts& facts) {
  CULPRIT_TRY(const auto parameters, config.object("rope_parameters"));
  CULPRIT_CHECK(parameters.object("full_attention"));
  CULPRIT_TRY(facts.rope, read_rope(config, facts.full_head_channels, kRopeBase, "full_attention"));
  if (facts.window == 0) return {};
  CULPRIT_CHECK(parameters.object("sliding_attention"));
  CULPRIT_TRY(facts.rope_local, read_rope(config, facts.head_channels, kRopeBase, "sliding_attention"));
  return {};
}

Result<Facts> read_hf(const HfConfig& config) {
  CULPRIT_CHECK(config.expect("enable_moe_block", false));
  CULPRIT_TRY(auto facts, read_facts(config, kGemma4.name,
                                     {.tied_head = true,
                                      .head_channels = 256,
                                      .rope_base = kRopeBase,
                                      .activation_key = "hidden_activation",
                                      .activation = "gelu_pytorch_tanh"}));
  CULPRIT_CHECK(config.expect("hidden_act", "gelu_pytorch_tanh"));
  // Images see both ways in a checkpoint that says "vision"; text does not.
  if (config.find("use_bidirectional_attention") == nullptr || *config.find("use_bidirectional_attention") != "vision")
    CULPRIT_CHECK(config.expect("use_bidirectional_attention", false));
  facts.query_pre_attn_scalar = 1;
  CULPRIT_TRY(facts.logit_softcap, config.number("final_logit_softcapping", 0));
  CULPRIT_CHECK(read_layers(config, facts));
  CULPRIT_CHECK(read_ropes(config, facts));
  return facts;
}

Json rope_parameters(const RopeFacts& rope) {
  Json parameters = {{"rope_type", "default"}};
  if (rope.scaling == RopeScaling::proportional) parameters = write_proportional(rope);
  if (rope.scaling == RopeScaling::linear) parameters = {{"rope_type", "linear"}, {"factor", rope.factor}};
  parameters["rope_theta"] = rope.base;
  return parameters;
}

Json write_hf(const Facts& facts) {
  auto config = write_facts(facts, kGemma4.hf_type, kGemma4.hf_class);
  for (const char* key : {"hidden_act", "rope_theta", "rope_scaling"}) config.erase(key);
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["global_head_dim"] = facts.full_head_channels;
  config["attention_k_eq_v"] = facts.full_value_is_key;
  config["num_global_key_value_heads"] = facts.full_kv_heads > 0 ? Json(facts.full_kv_heads) : Json();
  config["sliding_window"] = facts.window;
  config["layer_types"] = layer_types(facts);
  config["rope_parameters"] = {{"full_attention", rope_parameters(facts.rope)},
                               {"sliding_attention", rope_parameters(facts.rope_local ? *facts.rope_local : facts.rope)}};
  config["num_kv_shared_layers"] = facts.kv_shared_layers;
  config["use_double_wide_mlp"] = facts.kv_shared_double_mlp;
  config["hidden_size_per_layer_input"] = facts.per_layer_channels;
  config["vocab_size_per_layer_input"] = facts.vocabulary;
  config["final_logit_softcapping"] = facts.logit_softcap > 0 ? Json(facts.logit_softcap) : Json();
  config["enable_moe_block"] = false;
  return config;
}

/// Layers slide, slide, see all, and the same again with shared caches: the second and the third layer are read by three others.
Facts tiny() {
  auto facts = tiny_llama_facts();
  facts.architecture = kGemma4.name;
  facts.layers = 6;
  facts.norm_epsilon = 1e-6;
  facts.tied_head = true;
  facts.query_pre_attn_scalar = 1;
  facts.logit_softcap = 30;
  facts.window = 4;
  facts.full_every = 3;
  facts.rope_local = facts.rope;
  facts.full_head_channels = facts.rope.dims = 12;
  facts.rope.base = 1e6;
  facts.rope.scaling = RopeScaling::proportional;
  facts.rope.rotated = 6;
  facts.kv_shared_layers = 3;
  facts.kv_shared_double_mlp = true;
  facts.per_layer_channels = 10;
  return facts;
}
}  // namespace

const Architecture kGemma4 = {.name = "gemma4",
                              .hf_type = "gemma4_text",
                              .hf_class = "Gemma4ForCausalLM",
                              .read_gguf = nullptr,
                              .read_hf = read_hf,
                              .write_hf = write_hf,
                              .tiny = tiny,
                              .nodes = nodes_of,
                              .weights = kWeights,
                              .gguf_others = {},
                              .hf_wrapper = "gemma4"};

}  // namespace culprit
