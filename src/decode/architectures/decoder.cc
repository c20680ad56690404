#include "decode/architectures/decoder.h"

#include <fmt/format.h>

#include <cmath>

namespace culprit::decoder {
namespace {
std::int64_t query_channels(const Facts& f) { return std::int64_t{f.heads} * f.head_channels; }
std::int64_t kv_channels(const Facts& f) { return std::int64_t{f.kv_heads} * f.head_channels; }

std::int64_t value_channels(const Facts& f) { return std::int64_t{f.delta->value_heads} * f.delta->value_channels; }
std::int64_t conv_channels(const Facts& f) { return 2 * std::int64_t{f.delta->key_heads} * f.delta->key_channels + value_channels(f); }

class Builder {
 public:
  Builder(const Facts& facts, const Options& options) : facts_(facts), options_(options) {}

  std::vector<Node> build() {
    weighted(Op::embedding, "embed");
    std::string residual = "embed";
    if (options_.scaled_embedding) {
      plain(Op::scale, "embed_scaled", {"embed"}).factor = std::sqrt(static_cast<double>(facts_.hidden));
      residual = "embed_scaled";
    }
    if (facts_.per_layer_channels > 0) per_layer_inputs(residual);
    for (layer_ = 0; layer_ < facts_.layers; ++layer_) residual = block(residual);
    layer_ = -1;
    norm("final_norm", residual);
    auto& head = weighted(Op::linear, facts_.logit_softcap > 0 ? "logits_uncapped" : "logits", "final_norm");
    head.weight = facts_.tied_head ? "w.embed" : "w.logits";
    if (facts_.logit_softcap > 0) plain(Op::softcap, "logits", {"logits_uncapped"}).factor = facts_.logit_softcap;
    return std::move(nodes_);
  }

 private:
  [[nodiscard]] std::string tap(std::string_view role) const { return tap(role, layer_); }
  static std::string tap(std::string_view role, int layer) {
    return layer < 0 ? std::string(role) : fmt::format("layers.{}.{}", layer, role);
  }
  Node& plain(Op op, std::string_view role, std::vector<std::string> inputs) {
    nodes_.push_back({.op = op, .output = tap(role), .inputs = std::move(inputs), .weight = {}, .layer = layer_});
    return nodes_.back();
  }
  Node& weighted(Op op, std::string_view role, std::string_view input = {}) {
    auto& node = plain(op, role, {});
    if (!input.empty()) node.inputs.emplace_back(input);
    node.weight = "w." + node.output;
    return node;
  }
  void norm(std::string_view role, std::string_view input) { weighted(Op::rms_norm, role, input).unit_offset = facts_.norm_unit_offset; }
  void projection(std::string_view role, int heads) {
    auto& node = weighted(Op::linear, role, tap("attn_norm"));
    node.heads_out = heads;
    if (options_.qkv_bias) node.bias = node.weight + "_bias";
  }
  /// With `post_norms`, of the branch that ends in `role`.
  std::string post_norm(std::string_view branch, std::string_view role) {
    if (!options_.post_norms) return tap(branch);
    norm(role, tap(branch));
    return tap(role);
  }

  /// What the layers take from a second embedding, head i for layer i: the token's own, and a projection of the first embedding.
  void per_layer_inputs(const std::string& embedded) {
    const auto channels = static_cast<double>(facts_.per_layer_channels);
    weighted(Op::embedding, "per_layer_embed").heads_out = facts_.layers;
    plain(Op::scale, "per_layer_embed_scaled", {"per_layer_embed"}).factor = std::sqrt(channels);
    weighted(Op::linear, "per_layer_model", embedded).heads_out = facts_.layers;
    plain(Op::scale, "per_layer_model_scaled", {"per_layer_model"}).factor = 1 / std::sqrt(static_cast<double>(facts_.hidden));
    norm("per_layer_model_norm", "per_layer_model_scaled");
    plain(Op::add, "per_layer_sum", {"per_layer_model_norm", "per_layer_embed_scaled"});
    plain(Op::scale, "per_layer_inputs", {"per_layer_sum"}).factor = std::sqrt(0.5);
  }

  /// One block; returns its residual.
  std::string block(const std::string& residual) {
    norm("attn_norm", residual);
    const auto mixed = is_delta(facts_, layer_) ? gated_delta() : attention();
    plain(Op::add, "attn_residual", {residual, mixed});
    norm("mlp_norm", tap("attn_residual"));
    const auto branch = has_experts(facts_, layer_) ? experts() : mlp("mlp");
    const bool ends_here = !options_.layer_scalar && facts_.per_layer_channels == 0;
    plain(Op::add, ends_here ? "residual" : "mlp_residual", {tap("attn_residual"), post_norm(branch, "mlp_post_norm")});
    if (!ends_here) block_end();
    return tap("residual");
  }

  /// From attn_norm to what is added to the residual. A layer that shares keys and values has only queries.
  std::string attention() {
    const bool sliding = is_sliding(facts_, layer_);
    const int source = kv_layer(facts_, layer_);
    const int kv_heads = facts_of_layer(facts_, layer_).kv_heads;
    const bool own = source == layer_, value_is_key = !sliding && facts_.full_value_is_key;
    queries();
    if (own) projection("k", kv_heads);
    if (own && !value_is_key) projection("v", kv_heads);
    if (options_.qk_norm) norm("q_norm", tap("q"));
    if (options_.qk_norm && own) norm("k_norm", tap("k"));
    const auto value = tap(value_is_key ? "k" : "v");
    if (options_.v_norm && own) plain(Op::rms_norm, "v_norm", {value}).unscaled = true;
    rope("q", sliding);
    if (own) {
      rope("k", sliding);
      plain(Op::cache_write, "k_cache", {tap("k_rope")});
      plain(Op::cache_write, "v_cache", {options_.v_norm ? tap("v_norm") : value});
    }
    plain(Op::sdpa, "attn", {tap("q_rope"), tap("k_cache", source), tap("v_cache", source)}).window = sliding ? facts_.window : 0;
    if (options_.attn_gate) {
      plain(Op::sigmoid, "attn_gate_sigmoid", {tap("attn_gate")});
      plain(Op::multiply, "attn_gated", {tap("attn"), tap("attn_gate_sigmoid")});
    }
    linear("attn_out", options_.attn_gate ? "attn_gated" : "attn");
    return post_norm("attn_out", "attn_post_norm");
  }
  /// q, and beside each head its gate where there is one.
  void queries() {
    if (!options_.attn_gate) return projection("q", facts_.heads);
    projection("q_and_gate", facts_.heads);
    slice("q", "q_and_gate", 0, facts_.head_channels);
    slice("attn_gate", "q_and_gate", facts_.head_channels, facts_.head_channels);
  }
  void rope(const std::string& side, bool sliding) {
    plain(Op::rope, side + "_rope", {tap(options_.qk_norm ? side + "_norm" : side)}).rope_local = sliding && facts_.rope_local;
  }
  /// x without its channels outside of [begin, begin + channels), as heads where `heads` > 0.
  void slice(std::string_view role, std::string_view x, std::int64_t begin, std::int64_t channels, int heads = 0) {
    auto& node = plain(Op::slice, role, {tap(x)});
    node.begin = begin;
    node.channels = channels;
    node.heads_out = heads;
  }
  void linear(std::string_view role, std::string_view x, int heads = 0) { weighted(Op::linear, role, tap(x)).heads_out = heads; }

  /// The same of a layer with a gated delta rule.
  std::string gated_delta() {
    const auto& delta = *facts_.delta;
    const auto keys = std::int64_t{delta.key_heads} * delta.key_channels, values = std::int64_t{delta.value_heads} * delta.value_channels;
    linear("delta_qkv", "attn_norm", 1);
    linear("delta_z", "attn_norm", delta.value_heads);
    linear("delta_b", "attn_norm");
    linear("delta_a", "attn_norm");
    weighted(Op::causal_conv, "delta_conv", tap("delta_qkv"));
    plain(Op::silu, "delta_conv_act", {tap("delta_conv")});
    slice("delta_q", "delta_conv_act", 0, keys, delta.key_heads);
    slice("delta_k", "delta_conv_act", keys, keys, delta.key_heads);
    slice("delta_v", "delta_conv_act", 2 * keys, values, delta.value_heads);
    plain(Op::l2_norm, "delta_q_norm", {tap("delta_q")}).factor = 1 / std::sqrt(static_cast<double>(delta.key_channels));
    plain(Op::l2_norm, "delta_k_norm", {tap("delta_k")});
    auto& decay = weighted(Op::delta_decay, "delta_decay", tap("delta_a"));
    decay.bias = decay.weight + "_bias";
    plain(Op::sigmoid, "delta_rate", {tap("delta_b")});
    plain(Op::delta_state, "delta_state", {tap("delta_k_norm"), tap("delta_v"), tap("delta_decay"), tap("delta_rate")});
    plain(Op::delta_out, "delta_out", {tap("delta_q_norm"), tap("delta_state")});
    weighted(Op::rms_norm, "delta_norm", tap("delta_out"));
    plain(Op::swiglu, "delta_gated", {tap("delta_z"), tap("delta_norm")}).precise = true;
    linear("delta_proj", "delta_gated");
    return post_norm("delta_proj", "attn_post_norm");
  }

  /// Each returns the role of its last node.
  std::string mlp(const std::string& prefix) {
    linear(prefix + "_gate", "mlp_norm");
    linear(prefix + "_up", "mlp_norm");
    plain(options_.mlp_act, prefix + "_act", {tap(prefix + "_gate"), tap(prefix + "_up")});
    linear(prefix + "_down", prefix + "_act");
    return prefix + "_down";
  }
  std::string experts() {
    linear("router", "mlp_norm");
    auto& route = plain(Op::route, "route", {tap("router")});
    route.experts = facts_.experts->used;
    route.normalised = facts_.experts->normalised;
    expert_linear("expert_gate", "mlp_norm");
    expert_linear("expert_up", "mlp_norm");
    plain(options_.mlp_act, "expert_act", {tap("expert_gate"), tap("expert_up")});
    expert_linear("expert_down", "expert_act");
    plain(Op::expert_sum, "expert_sum", {tap("expert_down"), tap("route")}).experts = facts_.experts->used;
    if (facts_.experts->shared_hidden == 0) return "expert_sum";
    mlp("shared");
    linear("shared_scale", "mlp_norm");
    plain(Op::sigmoid, "shared_scale_sigmoid", {tap("shared_scale")});
    plain(Op::multiply, "shared_scaled", {tap("shared_down"), tap("shared_scale_sigmoid")});
    plain(Op::add, "mlp_out", {tap("expert_sum"), tap("shared_scaled")});
    return "mlp_out";
  }
  void expert_linear(std::string_view role, std::string_view x) {
    auto& node = weighted(Op::expert_linear, role, tap(x));
    node.inputs.push_back(tap("route"));
    node.experts = facts_.experts->used;
  }

  /// What comes behind the MLP where a block has more than that: its per-layer input, gated by the residual, and a learned scalar.
  void block_end() {
    std::string last = tap("mlp_residual");
    if (facts_.per_layer_channels > 0) {
      plain(Op::select_head, "per_layer_input", {"per_layer_inputs"}).head = layer_;
      weighted(Op::linear, "per_layer_gate", last);
      plain(Op::geglu, "per_layer_act", {tap("per_layer_gate"), tap("per_layer_input")});
      weighted(Op::linear, "per_layer_out", tap("per_layer_act"));
      norm("per_layer_post_norm", tap("per_layer_out"));
      plain(Op::add, options_.layer_scalar ? "per_layer_residual" : "residual", {last, tap("per_layer_post_norm")});
      last = tap("per_layer_residual");
    }
    if (options_.layer_scalar) plain(Op::scale, "residual", {last}).weight = "w." + tap("layer_scalar");
  }

  const Facts& facts_;
  const Options& options_;
  int layer_ = -1;
  std::vector<Node> nodes_;
};
}  // namespace

std::vector<Node> nodes(const Facts& facts, const Options& options) { return Builder(facts, options).build(); }

Shape vocabulary_by_hidden(const Facts& f) { return {f.vocabulary, f.hidden}; }
Shape hidden(const Facts& f) { return {f.hidden}; }
Shape head(const Facts& f) { return {f.head_channels}; }
Shape q(const Facts& f) { return {query_channels(f), f.hidden}; }
Shape kv(const Facts& f) { return {kv_channels(f), f.hidden}; }
Shape q_bias(const Facts& f) { return {query_channels(f)}; }
Shape kv_bias(const Facts& f) { return {kv_channels(f)}; }
Shape attn_out(const Facts& f) { return {f.hidden, query_channels(f)}; }
Shape mlp_in(const Facts& f) { return {f.mlp_hidden, f.hidden}; }
Shape mlp_out(const Facts& f) { return {f.hidden, f.mlp_hidden}; }
Shape router(const Facts& f) { return {f.experts->count, f.hidden}; }
Shape expert_in(const Facts& f) { return {f.experts->count, f.experts->hidden, f.hidden}; }
Shape expert_out(const Facts& f) { return {f.experts->count, f.hidden, f.experts->hidden}; }
Shape shared_in(const Facts& f) { return {f.experts->shared_hidden, f.hidden}; }
Shape shared_out(const Facts& f) { return {f.hidden, f.experts->shared_hidden}; }
Shape shared_gate(const Facts& f) { return {1, f.hidden}; }
Shape q_and_gate(const Facts& f) { return {2 * query_channels(f), f.hidden}; }
Shape delta_qkv(const Facts& f) { return {conv_channels(f), f.hidden}; }
Shape delta_z(const Facts& f) { return {value_channels(f), f.hidden}; }
Shape delta_per_head(const Facts& f) { return {f.delta->value_heads, f.hidden}; }
Shape delta_kernel(const Facts& f) { return {conv_channels(f), f.delta->kernel}; }
Shape delta_heads(const Facts& f) { return {f.delta->value_heads}; }
Shape delta_norm(const Facts& f) { return {f.delta->value_channels}; }
Shape delta_proj(const Facts& f) { return {f.hidden, value_channels(f)}; }

}  // namespace culprit::decoder
