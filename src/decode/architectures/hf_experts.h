#pragma once
// A mixture of experts in config.json, in the spelling of Qwen's mixtures.
#include "decode/architectures/hf_config.h"

namespace culprit {

/// What a class of transformers takes when the key is absent.
struct ExpertDefaults {
  int count = 0;
  int used = 0;
  int hidden = 0;
  bool normalised = true;
};

/// num_experts, num_experts_per_tok, moe_intermediate_size, decoder_sparse_step, mlp_only_layers, norm_topk_prob. All errors are
/// model-unsupported and name the key.
[[nodiscard]] Result<ExpertFacts> read_experts(const HfConfig& config, const ExpertDefaults& defaults);
void write_experts(const ExpertFacts& experts, Json& config);

}  // namespace culprit
