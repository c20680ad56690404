#pragma once
// The facts of an architecture and a checkpoint from which the decode graph follows.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

namespace culprit {

enum class RopePairing { half, interleaved };  // (i, i + d/2), or (2i, 2i + 1)
enum class RopeScaling { none, linear, llama3 };

struct RopeFacts {
  int dims = 0;  // rotated channels of a head; the rest pass through
  double base = 10000;
  RopePairing pairing = RopePairing::half;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;                 // linear and llama3
  double low_frequency_factor = 1;   // llama3
  double high_frequency_factor = 4;  // llama3
  double original_context = 8192;    // llama3, positions
};

struct Facts {
  std::string architecture;  // "llama"
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_channels = 0;
  int mlp_hidden = 0;
  int vocabulary = 0;
  int context = 0;  // positions
  double norm_epsilon = 1e-5;
  bool norm_unit_offset = false;  // RMSNorm multiplies by weight + 1, not by weight
  bool tied_head = false;
  double query_pre_attn_scalar = 0;  // attention scores are divided by its square root; 0: head_channels
  int window = 0;                    // sliding attention: a token sees so many last positions, itself included; 0: all
  int full_every = 0;                // with a window: every n-th layer sees all positions; 0: no layer does
  double logit_softcap = 0;          // logits become cap * tanh(logit / cap); 0: they are left alone
  RopeFacts rope;
  std::optional<RopeFacts> rope_local;  // of the sliding layers, where it is another one
};

[[nodiscard]] inline double attention_scale(const Facts& facts) {
  return 1 / std::sqrt(facts.query_pre_attn_scalar > 0 ? facts.query_pre_attn_scalar : facts.head_channels);
}
[[nodiscard]] inline bool is_sliding(const Facts& facts, int layer) {
  return facts.window > 0 && (facts.full_every == 0 || (layer + 1) % facts.full_every != 0);
}

}  // namespace culprit
