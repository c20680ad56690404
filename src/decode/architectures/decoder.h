#pragma once
// What the architectures share: one decoder of pre-norm blocks, rotary grouped-query attention and a gated MLP. Which of its optional nodes
// an architecture has is a line of options.
#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "decode/architecture.h"

namespace culprit::decoder {

struct Options {
  bool scaled_embedding = false;  // embed_scaled: embed * sqrt(hidden)
  bool qkv_bias = false;
  bool qk_norm = false;     // q_norm, k_norm: over the channels of a head, before rope
  bool post_norms = false;  // attn_post_norm, mlp_post_norm: of what is added to the residual
  Op mlp_act = Op::swiglu;
  bool attn_gate = false;     // the q projection has a gate beside each head, and sigmoid(gate) multiplies what attention returns
  bool v_norm = false;        // v_norm: over the channels of a head, without a weight
  bool layer_scalar = false;  // residual: what the block gives, times a learned scalar
};

[[nodiscard]] std::vector<Node> nodes(const Facts& facts, const Options& options);

// Shapes of its weights.
[[nodiscard]] Shape vocabulary_by_hidden(const Facts& facts);
[[nodiscard]] Shape hidden(const Facts& facts);
[[nodiscard]] Shape head(const Facts& facts);
[[nodiscard]] Shape q(const Facts& facts);
[[nodiscard]] Shape kv(const Facts& facts);
[[nodiscard]] Shape q_bias(const Facts& facts);
[[nodiscard]] Shape kv_bias(const Facts& facts);
[[nodiscard]] Shape attn_out(const Facts& facts);
[[nodiscard]] Shape mlp_in(const Facts& facts);
[[nodiscard]] Shape mlp_out(const Facts& facts);
// Of experts and a gated delta rule, where the facts have them.
[[nodiscard]] Shape router(const Facts& facts);
[[nodiscard]] Shape expert_in(const Facts& facts);
[[nodiscard]] Shape expert_out(const Facts& facts);
[[nodiscard]] Shape shared_in(const Facts& facts);
[[nodiscard]] Shape shared_out(const Facts& facts);
[[nodiscard]] Shape shared_gate(const Facts& facts);
[[nodiscard]] Shape q_and_gate(const Facts& facts);
[[nodiscard]] Shape delta_qkv(const Facts& facts);
[[nodiscard]] Shape delta_z(const Facts& facts);
[[nodiscard]] Shape delta_per_head(const Facts& facts);
[[nodiscard]] Shape delta_kernel(const Facts& facts);
[[nodiscard]] Shape delta_heads(const Facts& facts);
[[nodiscard]] Shape delta_norm(const Facts& facts);
[[nodiscard]] Shape delta_proj(const Facts& facts);

/// Weights that all of these decoders have under the same names. Norms that some have stand below.
inline constexpr WeightEntry kShared[] = {
    {"embed", "token_embd.weight", "model.embed_tokens.weight", vocabulary_by_hidden},
    {"attn_norm", "blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight", hidden},
    {"q", "blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight", q},
    {"k", "blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight", kv},
    {"v", "blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight", kv},
    {"attn_out", "blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight", attn_out},
    {"mlp_gate", "blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight", mlp_in},
    {"mlp_up", "blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight", mlp_in},
    {"mlp_down", "blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight", mlp_out},
    {"final_norm", "output_norm.weight", "model.norm.weight", hidden},
    {"logits", "output.weight", "lm_head.weight", vocabulary_by_hidden},
};
inline constexpr WeightEntry kMlpNorm = {"mlp_norm", "blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight", hidden};
inline constexpr WeightEntry kQNorm = {"q_norm", "blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight", head};
inline constexpr WeightEntry kKNorm = {"k_norm", "blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight", head};

/// The shared weights and an architecture's own.
template <class... Own>
constexpr std::array<WeightEntry, std::size(kShared) + sizeof...(Own)> weights_with(const Own&... own) {
  std::array<WeightEntry, std::size(kShared) + sizeof...(Own)> all{};
  std::copy(std::begin(kShared), std::end(kShared), all.begin());
  std::size_t next = std::size(kShared);
  ((all[next++] = own), ...);
  return all;
}

/// The weights of an architecture that has no GGUF form.
template <std::size_t kCount>
constexpr std::array<WeightEntry, kCount> hf_only(std::array<WeightEntry, kCount> weights) {
  for (auto& weight : weights) weight.gguf = {};
  return weights;
}

/// Without those of `roles`, each of which must be there.
template <std::size_t kCount, std::size_t kFewer>
constexpr auto without(const std::array<WeightEntry, kCount>& weights, const std::string_view (&roles)[kFewer]) {
  std::array<WeightEntry, kCount - kFewer> rest{};
  std::size_t next = 0;
  for (const auto& weight : weights)
    if (std::find(std::begin(roles), std::end(roles), weight.role) == std::end(roles)) rest[next++] = weight;
  return rest;
}

}  // namespace culprit::decoder
