#pragma once
// What the architectures share: one decoder of pre-norm blocks, rotary grouped-query attention and a gated MLP. Which of its optional nodes
// an architecture has is a line of options.
#include <vector>

#include "decode/architecture.h"

namespace culprit::decoder {

struct Options {
  bool scaled_embedding = false;  // embed_scaled: embed * sqrt(hidden)
  bool qkv_bias = false;
  bool qk_norm = false;     // q_norm, k_norm: over the channels of a head, before rope
  bool post_norms = false;  // attn_post_norm, mlp_post_norm: of what is added to the residual
  Op mlp_act = Op::swiglu;
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

}  // namespace culprit::decoder
