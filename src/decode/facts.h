#pragma once
// The facts of an architecture and a checkpoint from which the decode graph follows.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace culprit {

enum class RopePairing { half, interleaved };  // (i, i + d/2), or (2i, 2i + 1)
enum class RopeScaling { none, linear, llama3, proportional };

struct RopeFacts {
  int dims = 0;  // rotated channels of a head; the rest pass through
  double base = 10000;
  RopePairing pairing = RopePairing::half;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;                 // linear, llama3 and proportional
  double low_frequency_factor = 1;   // llama3
  double high_frequency_factor = 4;  // llama3
  double original_context = 8192;    // llama3, positions
  int rotated = 0;                   // proportional: channels in pairs that turn, the first of `dims`; the other pairs stand still
};

/// A mixture of experts in place of the MLP of some layers.
struct ExpertFacts {
  int count = 0;
  int used = 0;                        // by each token
  int hidden = 0;                      // of one expert's MLP
  int shared_hidden = 0;               // of an MLP that every token takes beside its experts; 0: there is none
  int every = 1;                       // the layers whose number, from 1 on, is a multiple of it have experts
  std::vector<int> dense_layers = {};  // but for these, from 0 on
  bool normalised = true;              // the weights of a token's experts sum to 1; else they are shares of all experts
};

/// Layers of a gated delta rule (Yang et al., Gated Delta Networks, 2024) in place of attention.
struct DeltaFacts {
  int key_heads = 0;  // of queries too
  int value_heads = 0;
  int key_channels = 0;     // of a head
  int value_channels = 0;   // of a head
  int kernel = 4;           // tokens that the convolution over queries, keys and values takes in, the newest included
  int attention_every = 4;  // the layers whose number, from 1 on, is a multiple of it are attention; 0: none is
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
  std::optional<ExpertFacts> experts;
  std::optional<DeltaFacts> delta;
  // Gemma 4. "Full" layers are those that see all positions.
  int full_head_channels = 0;         // of full layers; 0: head_channels
  int full_kv_heads = 0;              // of full layers; 0: kv_heads
  bool full_value_is_key = false;     // full layers have no v projection: their values are the keys before norm and rope
  int kv_shared_layers = 0;           // the last so many layers read the cache of the last layer of their kind before them
  bool kv_shared_double_mlp = false;  // and their MLP is twice as wide
  int per_layer_channels = 0;         // input that each layer takes from a second embedding; 0: none
};

[[nodiscard]] inline double attention_scale(const Facts& facts) {
  return 1 / std::sqrt(facts.query_pre_attn_scalar > 0 ? facts.query_pre_attn_scalar : facts.head_channels);
}
[[nodiscard]] inline bool is_sliding(const Facts& facts, int layer) {
  return facts.window > 0 && (facts.full_every == 0 || (layer + 1) % facts.full_every != 0);
}
[[nodiscard]] inline bool has_experts(const Facts& facts, int layer) {
  if (!facts.experts || (layer + 1) % facts.experts->every != 0) return false;
  const auto& dense = facts.experts->dense_layers;
  return std::find(dense.begin(), dense.end(), layer) == dense.end();
}
[[nodiscard]] inline bool is_delta(const Facts& facts, int layer) {
  return facts.delta && (facts.delta->attention_every == 0 || (layer + 1) % facts.delta->attention_every != 0);
}

/// Whether a layer has no keys and values of its own.
[[nodiscard]] inline bool shares_kv(const Facts& facts, int layer) { return layer >= facts.layers - facts.kv_shared_layers; }
/// The layer whose cache a layer reads: its own, or the last of its kind (sliding, full) that does not share; -1 when there is none.
[[nodiscard]] inline int kv_layer(const Facts& facts, int layer) {
  if (!shares_kv(facts, layer)) return layer;
  int source = facts.layers - facts.kv_shared_layers - 1;
  while (source >= 0 && is_sliding(facts, source) != is_sliding(facts, layer)) --source;
  return source;
}
/// The facts with head_channels, kv_heads and mlp_hidden as this layer has them; those of the model outside of the layers (-1).
[[nodiscard]] inline Facts facts_of_layer(Facts facts, int layer) {
  if (layer < 0) return facts;
  if (!is_sliding(facts, layer)) {
    if (facts.full_head_channels > 0) facts.head_channels = facts.full_head_channels;
    if (facts.full_kv_heads > 0) facts.kv_heads = facts.full_kv_heads;
  }
  if (facts.kv_shared_double_mlp && shares_kv(facts, layer)) facts.mlp_hidden *= 2;
  return facts;
}

}  // namespace culprit
