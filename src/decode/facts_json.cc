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
constexpr Name<RopeScaling> kScalings[] = {{RopeScaling::none, "none"}, {RopeScaling::linear, "linear"}, {RopeScaling::llama3, "llama3"}};

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
}  // namespace

Json to_json(const Facts& facts) {
  const auto& rope = facts.rope;
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
              {"tied_head", facts.tied_head},
              {"rope", Json{{"dims", rope.dims},
                            {"base", hex_float(rope.base)},
                            {"pairing", text_of(kPairings, rope.pairing)},
                            {"scaling", text_of(kScalings, rope.scaling)},
                            {"factor", hex_float(rope.factor)},
                            {"low_frequency_factor", hex_float(rope.low_frequency_factor)},
                            {"high_frequency_factor", hex_float(rope.high_frequency_factor)},
                            {"original_context", hex_float(rope.original_context)}}}};
}

Result<Facts> facts_from_json(const Json& json) {
  Facts facts;
  std::string pairing;
  std::string scaling;
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
      .required("tied_head", facts.tied_head);
  const auto* rope = fields.find("rope");
  CULPRIT_CHECK(fields.done());
  if (rope == nullptr) return fail("json-invalid", "facts: field 'rope' is missing");
  Fields rope_fields(*rope, "facts.rope", "json-invalid");
  rope_fields.required("dims", facts.rope.dims)
      .required("base", facts.rope.base)
      .required("pairing", pairing)
      .required("scaling", scaling)
      .required("factor", facts.rope.factor)
      .required("low_frequency_factor", facts.rope.low_frequency_factor)
      .required("high_frequency_factor", facts.rope.high_frequency_factor)
      .required("original_context", facts.rope.original_context);
  CULPRIT_CHECK(rope_fields.done());
  CULPRIT_TRY(facts.rope.pairing, parse(kPairings, "pairing", pairing));
  CULPRIT_TRY(facts.rope.scaling, parse(kScalings, "scaling", scaling));
  return facts;
}

}  // namespace culprit
