#include "decode/architectures/hf_config.h"

#include <fmt/format.h>

#include <cmath>

#include "base/fields.h"

namespace culprit {

tl::unexpected<Error> HfConfig::unsupported(const std::string& key, const std::string& message) const {
  return fail("model-unsupported", key + ": " + message, file_.string());
}

const Json* HfConfig::find(const std::string& key) const {
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

namespace {
template <class T>
Result<T> value_of(const HfConfig& config, const std::string& key, const T& otherwise, const char* kind) {
  const auto* json = config.find(key);
  if (json == nullptr) return otherwise;
  T value{};
  if (!read_json(*json, value)) return config.unsupported(key, fmt::format("expected {}, got {}", kind, json->dump().substr(0, 64)));
  return value;
}
}  // namespace

Result<int> HfConfig::count(const std::string& key) const {
  if (!has(key)) return unsupported(key, "the key is missing");
  return count(key, 0);
}
Result<int> HfConfig::count(const std::string& key, int otherwise) const {
  CULPRIT_TRY(const int value, value_of(*this, key, otherwise, "a count below 2^31"));
  if (value < 0) return unsupported(key, fmt::format("expected a count, got {}", value));
  return value;
}
Result<double> HfConfig::number(const std::string& key, double otherwise) const { return value_of(*this, key, otherwise, "a number"); }
Result<bool> HfConfig::flag(const std::string& key, bool otherwise) const { return value_of(*this, key, otherwise, "true or false"); }
Result<std::string> HfConfig::text(const std::string& key, const std::string& otherwise) const {
  return value_of(*this, key, otherwise, "a text");
}
Result<HfConfig> HfConfig::object(const std::string& key) const {
  const auto* json = find(key);
  if (json == nullptr || !json->is_object()) return unsupported(key, "expected an object");
  return HfConfig(*json, file_);
}
HfConfig HfConfig::without(const std::string& key) const {
  auto json = json_;
  json.erase(key);
  if (const auto parameters = json.find("rope_parameters"); parameters != json.end() && parameters->is_object()) parameters->erase(key);
  return HfConfig(json, file_);
}
Result<void> HfConfig::expect(const std::string& key, const Json& only) const {
  const auto* json = find(key);
  if (json == nullptr || *json == only) return {};
  return unsupported(key, fmt::format("expected {}, got {}", only.dump(), json->dump().substr(0, 64)));
}

namespace {
/// The share of channels that turn, in whole pairs; an optional factor divides their frequencies.
Result<void> read_proportional(const HfConfig& scaling, RopeFacts& rope) {
  CULPRIT_TRY(const double share, scaling.number("partial_rotary_factor", 1));
  const double rotated = std::floor(rope.dims * share);
  if (!(rotated >= 0 && rotated <= rope.dims) || std::fmod(rotated, 2) != 0)
    return scaling.unsupported("partial_rotary_factor",
                               fmt::format("expected a share that makes an even number of {} channels, got {}", rope.dims, share));
  rope.scaling = RopeScaling::proportional;
  rope.rotated = static_cast<int>(rotated);
  CULPRIT_TRY(rope.factor, scaling.number("factor", 1));
  return {};
}

/// The object that says how the base is scaled: rope_scaling, or the same inside rope_parameters.
Result<void> read_scaling(const HfConfig& scaling, RopeFacts& rope) {
  CULPRIT_TRY(const auto old_type, scaling.text("type", "default"));
  CULPRIT_TRY(const auto type, scaling.text("rope_type", old_type));
  if (type == "proportional") return read_proportional(scaling, rope);
  CULPRIT_CHECK(scaling.expect("partial_rotary_factor", 1));
  if (type == "default") return {};
  if (type != "linear" && type != "llama3")
    return scaling.unsupported("rope_type", "expected default, linear, llama3 or proportional, got " + type.substr(0, 32));
  const auto required = [&](const char* key) -> Result<double> {
    if (!scaling.has(key)) return scaling.unsupported(key, fmt::format("rope scaling {} needs it", type));
    return scaling.number(key, 0);
  };
  rope.scaling = type == "linear" ? RopeScaling::linear : RopeScaling::llama3;
  CULPRIT_TRY(rope.factor, required("factor"));
  if (type == "linear") return {};
  CULPRIT_TRY(rope.low_frequency_factor, required("low_freq_factor"));
  CULPRIT_TRY(rope.high_frequency_factor, required("high_freq_factor"));
  CULPRIT_TRY(rope.original_context, required("original_max_position_embeddings"));
  return {};
}
}  // namespace

Result<RopeFacts> read_rope(const HfConfig& config, int dims, double base, const std::string& layer_type) {
  RopeFacts rope;
  rope.dims = dims;
  if (config.has("rope_parameters")) {
    CULPRIT_TRY(auto parameters, config.object("rope_parameters"));
    if (!layer_type.empty() && parameters.has(layer_type)) {
      CULPRIT_TRY(parameters, parameters.object(layer_type));
    }
    CULPRIT_TRY(rope.base, parameters.number("rope_theta", base));
    if (layer_type.empty() && config.has("rope_theta")) CULPRIT_CHECK(config.expect("rope_theta", rope.base));
    CULPRIT_CHECK(read_scaling(parameters, rope));
    if (!layer_type.empty() || !config.has("rope_scaling")) return rope;
    RopeFacts old = rope;
    old.scaling = RopeScaling::none;
    CULPRIT_TRY(const auto scaling, config.object("rope_scaling"));
    CULPRIT_CHECK(read_scaling(scaling, old));
    if (old.scaling != rope.scaling || (rope.scaling != RopeScaling::none && old.factor != rope.factor))
      return config.unsupported("rope_scaling", "it contradicts rope_parameters");
    return rope;
  }
  CULPRIT_TRY(rope.base, config.number("rope_theta", base));
  if (!config.has("rope_scaling")) return rope;
  CULPRIT_TRY(const auto scaling, config.object("rope_scaling"));
  CULPRIT_CHECK(read_scaling(scaling, rope));
  return rope;
}

Result<Facts> read_facts(const HfConfig& config, std::string_view architecture, const HfDefaults& defaults) {
  Facts facts;
  facts.architecture = architecture;
  CULPRIT_TRY(facts.layers, config.count("num_hidden_layers"));
  CULPRIT_TRY(facts.hidden, config.count("hidden_size"));
  if (defaults.has_mlp || config.has("intermediate_size")) {
    CULPRIT_TRY(facts.mlp_hidden, config.count("intermediate_size"));
  }
  CULPRIT_TRY(facts.heads, config.count("num_attention_heads"));
  CULPRIT_TRY(facts.kv_heads, config.count("num_key_value_heads", facts.heads));
  CULPRIT_TRY(facts.vocabulary, config.count("vocab_size"));
  CULPRIT_TRY(facts.context, config.count("max_position_embeddings", 0));
  CULPRIT_TRY(facts.norm_epsilon, config.number("rms_norm_eps", 1e-6));
  CULPRIT_TRY(facts.tied_head, config.flag("tie_word_embeddings", defaults.tied_head));
  if (facts.heads == 0) return config.unsupported("num_attention_heads", "expected a positive count, got 0");
  facts.head_channels = defaults.head_channels > 0 ? defaults.head_channels : facts.hidden / facts.heads;
  if (defaults.head_channels == 0 && !config.has("head_dim") && facts.hidden % facts.heads != 0)
    return config.unsupported("hidden_size", fmt::format("{} channels cannot be split into {} heads", facts.hidden, facts.heads));
  CULPRIT_TRY(facts.head_channels, config.count("head_dim", facts.head_channels));
  for (const char* key : {"attention_bias", "mlp_bias"}) CULPRIT_CHECK(config.expect(key, false));
  CULPRIT_CHECK(config.expect("partial_rotary_factor", 1));
  CULPRIT_CHECK(config.expect(defaults.activation_key, defaults.activation));
  CULPRIT_TRY(facts.rope, read_rope(config, facts.head_channels, defaults.rope_base));
  return facts;
}

Result<void> read_layer_types(const HfConfig& config, int window, Facts& facts) {
  const auto* types = config.find("layer_types");
  if (types == nullptr) return {};
  std::vector<std::string> names;
  if (!read_json(*types, names) || names.size() != static_cast<std::size_t>(facts.layers))
    return config.unsupported("layer_types",
                              fmt::format("expected as many texts as num_hidden_layers, {}, got {}", facts.layers, types->size()));
  int slide = 0, first_full = facts.layers;
  for (int i = facts.layers; i-- > 0;) {
    const auto& name = names[static_cast<std::size_t>(i)];
    if (name != "full_attention" && name != "sliding_attention")
      return config.unsupported("layer_types", "expected full_attention or sliding_attention, got " + name.substr(0, 32));
    slide += name == "sliding_attention" ? 1 : 0;
    if (name == "full_attention") first_full = i;
  }
  Facts found = facts;
  found.window = slide > 0 ? window : 0;
  found.full_every = slide > 0 && slide < facts.layers ? first_full + 1 : 0;
  if (slide > 0 && window == 0) return config.unsupported("sliding_window", "layer_types has sliding layers, but there is no window");
  for (int i = 0; i < facts.layers; ++i) {
    const bool slides = names[static_cast<std::size_t>(i)] == "sliding_attention";
    if (slides != is_sliding(found, i))
      return config.unsupported("layer_types", fmt::format("expected every n-th layer to be full, got layer {} out of turn", i));
    if (facts.window > 0 && slides != is_sliding(facts, i))
      return config.unsupported("layer_types", fmt::format("layer {} contradicts the other keys of the window", i));
  }
  facts.window = found.window;
  facts.full_every = found.full_every;
  return {};
}

Result<void> read_qwen_window(const HfConfig& config, Facts& facts) {
  CULPRIT_TRY(const bool used, config.flag("use_sliding_window", false));
  CULPRIT_TRY(const int window, config.count("sliding_window", 0));
  CULPRIT_TRY(const int full_below, config.count("max_window_layers", facts.layers));
  if (used && window > 0 && full_below < facts.layers) {
    if (full_below > 0)
      return config.unsupported("max_window_layers", fmt::format("expected 0 or {} layers, got {}", facts.layers, full_below));
    facts.window = window;
  }
  return read_layer_types(config, used ? window : 0, facts);
}

void write_qwen_window(const Facts& facts, Json& config) {
  config["use_sliding_window"] = facts.window > 0;
  config["sliding_window"] = facts.window > 0 ? Json(facts.window) : Json();
  config["max_window_layers"] = facts.window > 0 ? 0 : facts.layers;
}

Json layer_types(const Facts& facts) {
  Json types = Json::array();
  for (int i = 0; i < facts.layers; ++i) types.push_back(is_sliding(facts, i) ? "sliding_attention" : "full_attention");
  return types;
}

Json whole(double value) {
  const auto rounded = std::llround(value);
  return static_cast<double>(rounded) == value ? Json(rounded) : Json(value);
}

Json write_proportional(const RopeFacts& rope) {
  return {{"rope_type", "proportional"}, {"partial_rotary_factor", static_cast<double>(rope.rotated) / rope.dims}, {"factor", rope.factor}};
}

Json write_facts(const Facts& facts, std::string_view model_type, std::string_view model_class) {
  Json scaling;
  if (facts.rope.scaling == RopeScaling::linear) scaling = {{"rope_type", "linear"}, {"factor", facts.rope.factor}};
  if (facts.rope.scaling == RopeScaling::proportional) scaling = write_proportional(facts.rope);
  if (facts.rope.scaling == RopeScaling::llama3)
    scaling = {{"rope_type", "llama3"},
               {"factor", facts.rope.factor},
               {"low_freq_factor", facts.rope.low_frequency_factor},
               {"high_freq_factor", facts.rope.high_frequency_factor},
               {"original_max_position_embeddings", whole(facts.rope.original_context)}};
  return {{"architectures", {model_class}},
          {"model_type", model_type},
          {"num_hidden_layers", facts.layers},
          {"hidden_size", facts.hidden},
          {"intermediate_size", facts.mlp_hidden},
          {"num_attention_heads", facts.heads},
          {"num_key_value_heads", facts.kv_heads},
          {"head_dim", facts.head_channels},
          {"vocab_size", facts.vocabulary},
          {"max_position_embeddings", facts.context},
          {"rms_norm_eps", facts.norm_epsilon},
          {"tie_word_embeddings", facts.tied_head},
          {"rope_theta", facts.rope.base},
          {"rope_scaling", scaling},
          {"attention_bias", false},
          {"hidden_act", "silu"},
          {"torch_dtype", "float32"}};
}

}  // namespace culprit
