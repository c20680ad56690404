#include "decode/architectures/decoder.h"

#include <fmt/format.h>

#include <cmath>

namespace culprit::decoder {
namespace {
std::int64_t query_channels(const Facts& f) { return std::int64_t{f.heads} * f.head_channels; }
std::int64_t kv_channels(const Facts& f) { return std::int64_t{f.kv_heads} * f.head_channels; }

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
    attention();
    weighted(Op::linear, "attn_out", tap("attn"));
    const auto attended = post_norm("attn_out", "attn_post_norm");
    plain(Op::add, "attn_residual", {residual, attended});
    norm("mlp_norm", tap("attn_residual"));
    weighted(Op::linear, "mlp_gate", tap("mlp_norm"));
    weighted(Op::linear, "mlp_up", tap("mlp_norm"));
    plain(options_.mlp_act, "mlp_act", {tap("mlp_gate"), tap("mlp_up")});
    weighted(Op::linear, "mlp_down", tap("mlp_act"));
    const auto mlp = post_norm("mlp_down", "mlp_post_norm");
    const bool ends_here = !options_.layer_scalar && facts_.per_layer_channels == 0;
    plain(Op::add, ends_here ? "residual" : "mlp_residual", {tap("attn_residual"), mlp});
    if (!ends_here) block_end();
    return tap("residual");
  }

  /// From attn_norm to what the heads found. A layer that shares keys and values has only queries.
  void attention() {
    const bool sliding = is_sliding(facts_, layer_);
    const int source = kv_layer(facts_, layer_);
    const int kv_heads = facts_of_layer(facts_, layer_).kv_heads;
    const bool own = source == layer_, value_is_key = !sliding && facts_.full_value_is_key;
    projection("q", facts_.heads);
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
  }
  void rope(const std::string& side, bool sliding) {
    plain(Op::rope, side + "_rope", {tap(options_.qk_norm ? side + "_norm" : side)}).rope_local = sliding && facts_.rope_local;
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

}  // namespace culprit::decoder
