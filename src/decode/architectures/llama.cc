// Llama 1 to 3, and what has its graph (SmolLM2, Mistral 7B): pre-norm blocks, rotary grouped-query attention, SwiGLU.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "decode/architecture.h"
#include "decode/ops.h"

namespace culprit {
namespace {
using F = const Facts&;
std::int64_t query_channels(F f) { return std::int64_t{f.heads} * f.head_channels; }
std::int64_t kv_channels(F f) { return std::int64_t{f.kv_heads} * f.head_channels; }

constexpr WeightEntry kWeights[] = {
    {"embed", "token_embd.weight",
     [](F f) -> Shape {
       return {f.vocabulary, f.hidden};
     }},
    {"attn_norm", "blk.{}.attn_norm.weight", [](F f) -> Shape { return {f.hidden}; }},
    {"q", "blk.{}.attn_q.weight",
     [](F f) -> Shape {
       return {query_channels(f), f.hidden};
     }},
    {"k", "blk.{}.attn_k.weight",
     [](F f) -> Shape {
       return {kv_channels(f), f.hidden};
     }},
    {"v", "blk.{}.attn_v.weight",
     [](F f) -> Shape {
       return {kv_channels(f), f.hidden};
     }},
    {"attn_out", "blk.{}.attn_output.weight",
     [](F f) -> Shape {
       return {f.hidden, query_channels(f)};
     }},
    {"mlp_norm", "blk.{}.ffn_norm.weight", [](F f) -> Shape { return {f.hidden}; }},
    {"mlp_gate", "blk.{}.ffn_gate.weight",
     [](F f) -> Shape {
       return {f.mlp_hidden, f.hidden};
     }},
    {"mlp_up", "blk.{}.ffn_up.weight",
     [](F f) -> Shape {
       return {f.mlp_hidden, f.hidden};
     }},
    {"mlp_down", "blk.{}.ffn_down.weight",
     [](F f) -> Shape {
       return {f.hidden, f.mlp_hidden};
     }},
    {"final_norm", "output_norm.weight", [](F f) -> Shape { return {f.hidden}; }},
    {"logits", "output.weight",
     [](F f) -> Shape {
       return {f.vocabulary, f.hidden};
     }},
};
constexpr std::string_view kRopeFactors = "rope_freqs.weight";
constexpr std::string_view kOthers[] = {kRopeFactors};

std::vector<Node> nodes_of(F facts) {
  std::vector<Node> nodes;
  std::string residual = "embed";
  nodes.push_back({.op = Op::embedding, .output = residual, .inputs = {}, .weight = "w.embed", .layer = -1, .heads_out = 0});
  for (int layer = 0; layer < facts.layers; ++layer) {
    const auto tap = [&](std::string_view role) { return fmt::format("layers.{}.{}", layer, role); };
    const auto plain = [&](Op op, std::string_view role, std::vector<std::string> inputs) {
      nodes.push_back({.op = op, .output = tap(role), .inputs = std::move(inputs), .weight = {}, .layer = layer, .heads_out = 0});
    };
    const auto weighted = [&](Op op, std::string_view role, std::string input, int heads_out = 0) {
      nodes.push_back({.op = op,
                       .output = tap(role),
                       .inputs = {std::move(input)},
                       .weight = "w." + tap(role),
                       .layer = layer,
                       .heads_out = heads_out});
    };
    weighted(Op::rms_norm, "attn_norm", residual);
    weighted(Op::linear, "q", tap("attn_norm"), facts.heads);
    weighted(Op::linear, "k", tap("attn_norm"), facts.kv_heads);
    weighted(Op::linear, "v", tap("attn_norm"), facts.kv_heads);
    plain(Op::rope, "q_rope", {tap("q")});
    plain(Op::rope, "k_rope", {tap("k")});
    plain(Op::cache_write, "k_cache", {tap("k_rope")});
    plain(Op::cache_write, "v_cache", {tap("v")});
    plain(Op::sdpa, "attn", {tap("q_rope"), tap("k_cache"), tap("v_cache")});
    weighted(Op::linear, "attn_out", tap("attn"));
    plain(Op::add, "attn_residual", {residual, tap("attn_out")});
    weighted(Op::rms_norm, "mlp_norm", tap("attn_residual"));
    weighted(Op::linear, "mlp_gate", tap("mlp_norm"));
    weighted(Op::linear, "mlp_up", tap("mlp_norm"));
    plain(Op::swiglu, "mlp_act", {tap("mlp_gate"), tap("mlp_up")});
    weighted(Op::linear, "mlp_down", tap("mlp_act"));
    plain(Op::add, "residual", {tap("attn_residual"), tap("mlp_down")});
    residual = tap("residual");
  }
  nodes.push_back(
      {.op = Op::rms_norm, .output = "final_norm", .inputs = {residual}, .weight = "w.final_norm", .layer = -1, .heads_out = 0});
  nodes.push_back({.op = Op::linear,
                   .output = "logits",
                   .inputs = {"final_norm"},
                   .weight = facts.tied_head ? "w.embed" : "w.logits",
                   .layer = -1,
                   .heads_out = 0});
  return nodes;
}

bool has(const Gguf& file, const std::string& key) { return file.metadata().contains(key); }

Result<int> count(const Gguf& file, const std::string& key) {
  CULPRIT_TRY(const double value, file.number(key));
  if (!(value >= 0 && value <= 0x7fffffff) || value != std::floor(value))
    return fail("model-unsupported", fmt::format("{}: expected a count below 2^31, got {}", key, value), file.path().string());
  return static_cast<int>(value);
}

// These leave `out` alone when there is no such key.
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

/// Llama 3.1's scaling, which converters write out as one divisor for each frequency. The parameters are those that give these divisors;
/// low and high factor 1 and 4 and the original context 8192 are the only ones ever published.
Result<void> recognise_llama3(const Gguf& file, RopeFacts& rope) {
  CULPRIT_TRY(const auto weight, file.weight(std::string(kRopeFactors)));
  const auto divisors = weight.to_f32().values();
  auto candidate = rope;
  candidate.scaling = RopeScaling::llama3;
  candidate.factor = divisors.empty() ? 0 : *std::max_element(divisors.begin(), divisors.end());
  const auto plain = rope_frequencies(rope);
  const auto scaled = rope_frequencies(candidate);
  bool matches = rope.scaling == RopeScaling::none && divisors.size() == plain.size() && candidate.factor > 0;
  // The converter computes in f32 and Python floats: a few roundings of f32, and the smooth part subtracts two numbers of up to 4.
  const double bound = 16 * rounding_of(DType::f32).unit;
  for (std::size_t i = 0; matches && i < plain.size(); ++i) {
    const double expected = plain[i] / scaled[i];
    matches = std::abs(divisors[i] - expected) <= bound * candidate.factor * expected;
  }
  if (!matches)
    return fail("model-unsupported", fmt::format("tensor {} holds frequency divisors that are not Llama 3.1's", kRopeFactors),
                file.path().string());
  rope = candidate;
  return {};
}

Result<void> read_rope(const Gguf& file, RopeFacts& rope) {
  rope.pairing = RopePairing::interleaved;  // converters permute the rows of q and k for it
  CULPRIT_CHECK(optional_number(file, "llama.rope.freq_base", rope.base));
  const std::string old_factor = "llama.rope.scale_linear";  // of files before there were types: linear
  std::string scaling = has(file, old_factor) ? "linear" : "none";
  if (has(file, "llama.rope.scaling.type")) {
    CULPRIT_TRY(scaling, file.text("llama.rope.scaling.type"));
  }
  if (scaling == "linear") {
    rope.scaling = RopeScaling::linear;
    CULPRIT_TRY(rope.factor, file.number(has(file, old_factor) ? old_factor : "llama.rope.scaling.factor"));
  } else if (scaling != "none") {
    const bool plain = std::all_of(scaling.begin(), scaling.end(), [](char c) { return c > ' ' && c <= '~'; });
    return fail("model-unsupported", fmt::format("expected rope scaling none or linear, got {}", plain ? scaling.substr(0, 32) : "garbage"),
                file.path().string());
  }
  if (file.find(std::string(kRopeFactors)) != nullptr && rope.dims > 0) return recognise_llama3(file, rope);
  return {};
}

Result<Facts> read_gguf(const Gguf& file) {
  Facts facts;
  facts.architecture = kLlama.name;
  const auto unsupported = [&](std::string message) { return fail("model-unsupported", std::move(message), file.path().string()); };
  CULPRIT_TRY(facts.layers, count(file, "llama.block_count"));
  CULPRIT_TRY(facts.hidden, count(file, "llama.embedding_length"));
  CULPRIT_TRY(facts.mlp_hidden, count(file, "llama.feed_forward_length"));
  CULPRIT_TRY(facts.heads, count(file, "llama.attention.head_count"));
  facts.kv_heads = facts.heads;
  CULPRIT_CHECK(optional_count(file, "llama.attention.head_count_kv", facts.kv_heads));
  CULPRIT_TRY(facts.norm_epsilon, file.number("llama.attention.layer_norm_rms_epsilon"));
  CULPRIT_TRY(facts.context, count(file, "llama.context_length"));
  if (facts.heads == 0) return unsupported("expected a positive llama.attention.head_count, got 0");
  facts.head_channels = facts.hidden / facts.heads;
  if (!has(file, "llama.attention.key_length") && facts.hidden % facts.heads != 0)
    return unsupported(fmt::format("{} channels cannot be split into {} heads", facts.hidden, facts.heads));
  CULPRIT_CHECK(optional_count(file, "llama.attention.key_length", facts.head_channels));
  int value_channels = facts.head_channels;
  CULPRIT_CHECK(optional_count(file, "llama.attention.value_length", value_channels));
  if (value_channels != facts.head_channels)
    return unsupported(fmt::format("expected values of {} channels as the keys, got {}", facts.head_channels, value_channels));
  facts.rope.dims = facts.head_channels;
  CULPRIT_CHECK(optional_count(file, "llama.rope.dimension_count", facts.rope.dims));
  CULPRIT_CHECK(read_rope(file, facts.rope));
  if (const auto* embedding = file.find("token_embd.weight"))
    facts.vocabulary = static_cast<int>(std::min<std::int64_t>(embedding->shape.front(), 0x7fffffff));
  facts.tied_head = file.find("output.weight") == nullptr;
  return facts;
}
}  // namespace

const Architecture kLlama = {.name = "llama", .read_gguf = read_gguf, .nodes = nodes_of, .weights = kWeights, .gguf_others = kOthers};

}  // namespace culprit
