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
    for (layer_ = 0; layer_ < facts_.layers; ++layer_) residual = block(residual);
    layer_ = -1;
    norm("final_norm", residual);
    auto& head = weighted(Op::linear, facts_.logit_softcap > 0 ? "logits_uncapped" : "logits", "final_norm");
    head.weight = facts_.tied_head ? "w.embed" : "w.logits";
    if (facts_.logit_softcap > 0) plain(Op::softcap, "logits", {"logits_uncapped"}).factor = facts_.logit_softcap;
    return std::move(nodes_);
  }

 private:
  [[nodiscard]] std::string tap(std::string_view role) const {
    return layer_ < 0 ? std::string(role) : fmt::format("layers.{}.{}", layer_, role);
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

  /// One block; returns its residual.
  std::string block(const std::string& residual) {
    norm("attn_norm", residual);
    projection("q", facts_.heads);
    projection("k", facts_.kv_heads);
    projection("v", facts_.kv_heads);
    if (options_.qk_norm) {
      norm("q_norm", tap("q"));
      norm("k_norm", tap("k"));
    }
    const bool sliding = is_sliding(facts_, layer_);
    for (const std::string side : {"q", "k"})
      plain(Op::rope, side + "_rope", {tap(options_.qk_norm ? side + "_norm" : side)}).rope_local = sliding && facts_.rope_local;
    plain(Op::cache_write, "k_cache", {tap("k_rope")});
    plain(Op::cache_write, "v_cache", {tap("v")});
    plain(Op::sdpa, "attn", {tap("q_rope"), tap("k_cache"), tap("v_cache")}).window = sliding ? facts_.window : 0;
    weighted(Op::linear, "attn_out", tap("attn"));
    const auto attention = post_norm("attn_out", "attn_post_norm");
    plain(Op::add, "attn_residual", {residual, attention});
    norm("mlp_norm", tap("attn_residual"));
    weighted(Op::linear, "mlp_gate", tap("mlp_norm"));
    weighted(Op::linear, "mlp_up", tap("mlp_norm"));
    plain(options_.mlp_act, "mlp_act", {tap("mlp_gate"), tap("mlp_up")});
    weighted(Op::linear, "mlp_down", tap("mlp_act"));
    const auto mlp = post_norm("mlp_down", "mlp_post_norm");
    plain(Op::add, "residual", {tap("attn_residual"), mlp});
    return tap("residual");
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
