#include "decode/architectures/gguf_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace culprit::gguf {

bool has(const Gguf& file, const std::string& key) { return file.metadata().contains(key); }

Result<int> count(const Gguf& file, const std::string& key) {
  CULPRIT_TRY(const double value, file.number(key));
  if (!(value >= 0 && value <= 0x7fffffff) || value != std::floor(value))
    return fail("model-unsupported", fmt::format("{}: expected a count below 2^31, got {}", key, value), file.path().string());
  return static_cast<int>(value);
}

Result<void> optional_number(const Gguf& file, const std::string& key, double& out) {
  if (!has(file, key)) return {};
  CULPRIT_TRY(out, file.number(key));
  return {};
}

Result<void> optional_count(const Gguf& file, const std::string& key, int& out) {
  if (!has(file, key)) return {};
  CULPRIT_TRY(out, count(file, key));
  return {};
}

namespace {
Result<void> read_rope(const Gguf& file, const std::string& prefix, RopeFacts& rope) {
  CULPRIT_CHECK(optional_number(file, prefix + "rope.freq_base", rope.base));
  const auto old_factor = prefix + "rope.scale_linear";  // of files before there were types: linear
  const auto type = prefix + "rope.scaling.type";
  std::string scaling = has(file, old_factor) ? "linear" : "none";
  if (has(file, type)) {
    CULPRIT_TRY(scaling, file.text(type));
  }
  if (scaling == "linear") {
    rope.scaling = RopeScaling::linear;
    CULPRIT_TRY(rope.factor, file.number(has(file, old_factor) ? old_factor : prefix + "rope.scaling.factor"));
  } else if (scaling != "none") {
    const bool plain = std::all_of(scaling.begin(), scaling.end(), [](char c) { return c > ' ' && c <= '~'; });
    return fail("model-unsupported", fmt::format("expected rope scaling none or linear, got {}", plain ? scaling.substr(0, 32) : "garbage"),
                file.path().string());
  }
  return {};
}
}  // namespace

Result<Facts> read_facts(const Gguf& file, std::string_view architecture, RopePairing pairing) {
  Facts facts;
  facts.architecture = architecture;
  const auto prefix = facts.architecture + ".";
  const auto unsupported = [&](std::string message) { return fail("model-unsupported", std::move(message), file.path().string()); };
  CULPRIT_TRY(facts.layers, count(file, prefix + "block_count"));
  CULPRIT_TRY(facts.hidden, count(file, prefix + "embedding_length"));
  CULPRIT_TRY(facts.mlp_hidden, count(file, prefix + "feed_forward_length"));
  CULPRIT_TRY(facts.heads, count(file, prefix + "attention.head_count"));
  facts.kv_heads = facts.heads;
  CULPRIT_CHECK(optional_count(file, prefix + "attention.head_count_kv", facts.kv_heads));
  CULPRIT_TRY(facts.norm_epsilon, file.number(prefix + "attention.layer_norm_rms_epsilon"));
  CULPRIT_TRY(facts.context, count(file, prefix + "context_length"));
  if (facts.heads == 0) return unsupported(fmt::format("expected a positive {}attention.head_count, got 0", prefix));
  facts.head_channels = facts.hidden / facts.heads;
  if (!has(file, prefix + "attention.key_length") && facts.hidden % facts.heads != 0)
    return unsupported(fmt::format("{} channels cannot be split into {} heads", facts.hidden, facts.heads));
  CULPRIT_CHECK(optional_count(file, prefix + "attention.key_length", facts.head_channels));
  int value_channels = facts.head_channels;
  CULPRIT_CHECK(optional_count(file, prefix + "attention.value_length", value_channels));
  if (value_channels != facts.head_channels)
    return unsupported(fmt::format("expected values of {} channels as the keys, got {}", facts.head_channels, value_channels));
  facts.rope.pairing = pairing;
  facts.rope.dims = facts.head_channels;
  CULPRIT_CHECK(optional_count(file, prefix + "rope.dimension_count", facts.rope.dims));
  CULPRIT_CHECK(read_rope(file, prefix, facts.rope));
  if (const auto* embedding = file.find("token_embd.weight"))
    facts.vocabulary = static_cast<int>(std::min<std::int64_t>(embedding->shape.front(), 0x7fffffff));
  facts.tied_head = file.find("output.weight") == nullptr;
  return facts;
}

}  // namespace culprit::gguf
