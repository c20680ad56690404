#include "decode/facts_json.h"

#include <fmt/format.h>

#include <cassert>
#include <string_view>

#include "base/fields.h"

namespace culprit {
namespace {
template <class Value>
struct Name {
  Value value;
  std::string_view text;
};
constexpr Name<RopePairing> kPairings[] = {{RopePairing::half, "half"}, {RopePairing::interleaved, "interleaved"}};
constexpr Name<RopeScaling> kScalings[] = {{RopeScaling::none, "none"},
                                           {RopeScaling::linear, "linear"},
                                           {RopeScaling::llama3, "llama3"},
                                           {RopeScaling::proportional, "proportional"}};

template <class Value, std::size_t kCount>
std::string text_of(const Name<Value> (&names)[kCount], Value value) {
  for (const auto& name : names)
    if (name.value == value) return std::string(name.text);
  assert(!"a value without a name");
  return {};
}

template <class Value, std::size_t kCount>
Result<Value> parse(const Name<Value> (&names)[kCount], std::string_view what, const std::string& text) {
  for (const auto& name : names)
    if (name.text == text) return name.value;
  return fail("json-invalid", fmt::format("facts: there is no {} \"{}\"", what, text));
}

Json to_json(const RopeFacts& rope) {
  return Json{{"dims", rope.dims},
              {"base", hex_float(rope.base)},
              {"pairing", text_of(kPairings, rope.pairing)},
              {"scaling", text_of(kScalings, rope.scaling)},
              {"factor", hex_float(rope.factor)},
              {"low_frequency_factor", hex_float(rope.low_frequency_factor)},
              {"high_frequency_factor", hex_float(rope.high_frequency_factor)},
              {"original_context", hex_float(rope.original_context)},
              {"rotated", rope.rotated}};
}

Result<RopeFacts> rope_from_json(const Json& json, std::string_view what) {
  RopeFacts rope;
  std::string pairing;
  std::string scaling;
  Fields fields(json, what, "json-invalid");
  fields.required("dims", rope.dims)
      .required("base", rope.base)
      .required("pairing", pairing)
      .required("scaling", scaling)
      .required("factor", rope.factor)
      .required("low_frequency_factor", rope.low_frequency_factor)
      .required("high_frequency_factor", rope.high_frequency_factor)
      .required("original_context", rope.original_context)
      .required("rotated", rope.rotated);
  CULPRIT_CHECK(fields.done());
  CULPRIT_TRY(rope.pairing, parse(kPairings, "pairing", pairing));
  CULPRIT_TRY(rope.scaling, parse(kScalings, "scaling", scaling));
  return rope;
}

Json to_json(const ExpertFacts& experts) {
  return Json{{"count", experts.count},          {"used", experts.used},
              {"hidden", experts.hidden},        {"shared_hidden", experts.shared_hidden},
              {"every", experts.every},          {"dense_layers", experts.dense_layers},
              {"normalised", experts.normalised}};
}

Result<ExpertFacts> experts_from_json(const Json& json) {
  ExpertFacts experts;
  CULPRIT_CHECK(Fields(json, "facts.experts", "json-invalid")
                    .required("count", experts.count)
                    .required("used", experts.used)
                    .required("hidden", experts.hidden)
                    .required("shared_hidden", experts.shared_hidden)
                    .required("every", experts.every)
                    .required("dense_layers", experts.dense_layers)
                    .required("normalised", experts.normalised)
                    .done());
  return experts;
}

Json to_json(const DeltaFacts& delta) {
  return Json{{"key_heads", delta.key_heads},           {"value_heads", delta.value_heads}, {"key_channels", delta.key_channels},
              {"value_channels", delta.value_channels}, {"kernel", delta.kernel},           {"attention_every", delta.attention_every}};
}

Result<DeltaFacts> delta_from_json(const Json& json) {
  DeltaFacts delta;
  CULPRIT_CHECK(Fields(json, "facts.delta", "json-invalid")
                    .required("key_heads", delta.key_heads)
                    .required("value_heads", delta.value_heads)
                    .required("key_channels", delta.key_channels)
                    .required("value_channels", delta.value_channels)
                    .required("kernel", delta.kernel)
                    .required("attention_every", delta.attention_every)
                    .done());
  return delta;
}
}  // namespace

Json to_json(const Facts& facts) {
  return Json{{"architecture", facts.architecture},
              {"layers", facts.layers},
              {"hidden", facts.hidden},
              {"heads", facts.heads},
              {"kv_heads", facts.kv_heads},
              {"head_channels", facts.head_channels},
              {"mlp_hidden", facts.mlp_hidden},
              {"vocabulary", facts.vocabulary},
              {"context", facts.context},
              {"norm_epsilon", hex_float(facts.norm_epsilon)},
              {"norm_unit_offset", facts.norm_unit_offset},
              {"tied_head", facts.tied_head},
              {"query_pre_attn_scalar", hex_float(facts.query_pre_attn_scalar)},
              {"window", facts.window},
              {"full_every", facts.full_every},
              {"logit_softcap", hex_float(facts.logit_softcap)},
              {"rope", to_json(facts.rope)},
              {"rope_local", facts.rope_local ? to_json(*facts.rope_local) : Json()},
              {"experts", facts.experts ? to_json(*facts.experts) : Json()},
              {"delta", facts.delta ? to_json(*facts.delta) : Json()},
              {"full_head_channels", facts.full_head_channels},
              {"full_kv_heads", facts.full_kv_heads},
              {"full_value_is_key", facts.full_value_is_key},
              {"kv_shared_layers", facts.kv_shared_layers},
              {"kv_shared_double_mlp", facts.kv_shared_double_mlp},
              {"per_layer_channels", facts.per_layer_channels}};
}

Result<Facts> facts_from_json(const Json& json) {
  Facts facts;
  Fields fields(json, "facts", "json-invalid");
  fields.required("architecture", facts.architecture)
      .required("layers", facts.layers)
      .required("hidden", facts.hidden)
      .required("heads", facts.heads)
      .required("kv_heads", facts.kv_heads)
      .required("head_channels", facts.head_channels)
      .required("mlp_hidden", facts.mlp_hidden)
      .required("vocabulary", facts.vocabulary)
      .required("context", facts.context)
      .required("norm_epsilon", facts.norm_epsilon)
      .required("norm_unit_offset", facts.norm_unit_offset)
      .required("tied_head", facts.tied_head)
      .required("query_pre_attn_scalar", facts.query_pre_attn_scalar)
      .required("window", facts.window)
      .required("full_every", facts.full_every)
      .required("logit_softcap", facts.logit_softcap)
      .required("full_head_channels", facts.full_head_channels)
      .required("full_kv_heads", facts.full_kv_heads)
      .required("full_value_is_key", facts.full_value_is_key)
      .required("kv_shared_layers", facts.kv_shared_layers)
      .required("kv_shared_double_mlp", facts.kv_shared_double_mlp)
      .required("per_layer_channels", facts.per_layer_channels);
  const auto* rope = fields.find("rope");
  const auto* rope_local = fields.find("rope_local");  // null: the same for all layers
  const auto* experts = fields.find("experts");        // null: there are none
  const auto* delta = fields.find("delta");            // null: every layer is attention
  CULPRIT_CHECK(fields.done());
  if (rope == nullptr) return fail("json-invalid", "facts: field 'rope' is missing");
  if (rope_local == nullptr) return fail("json-invalid", "facts: field 'rope_local' is missing");
  if (experts == nullptr) return fail("json-invalid", "facts: field 'experts' is missing");
  if (delta == nullptr) return fail("json-invalid", "facts: field 'delta' is missing");
  CULPRIT_TRY(facts.rope, rope_from_json(*rope, "facts.rope"));
  if (!rope_local->is_null()) {
    CULPRIT_TRY(facts.rope_local, rope_from_json(*rope_local, "facts.rope_local"));
  }
  if (!experts->is_null()) {
    CULPRIT_TRY(facts.experts, experts_from_json(*experts));
  }
  if (!delta->is_null()) {
    CULPRIT_TRY(facts.delta, delta_from_json(*delta));
  }
  return facts;
}

}  // namespace culprit
