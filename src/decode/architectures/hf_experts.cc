#include "decode/architectures/hf_experts.h"

#include "base/fields.h"

namespace culprit {

Result<ExpertFacts> read_experts(const HfConfig& config, const ExpertDefaults& defaults) {
  ExpertFacts experts;
  CULPRIT_TRY(experts.count, config.count("num_experts", defaults.count));
  CULPRIT_TRY(experts.used, config.count("num_experts_per_tok", defaults.used));
  CULPRIT_TRY(experts.hidden, config.count("moe_intermediate_size", defaults.hidden));
  CULPRIT_TRY(experts.every, config.count("decoder_sparse_step", 1));
  CULPRIT_TRY(experts.normalised, config.flag("norm_topk_prob", defaults.normalised));
  if (const auto* dense = config.find("mlp_only_layers"); dense != nullptr && !read_json(*dense, experts.dense_layers))
    return config.unsupported("mlp_only_layers", "expected a list of layers");
  return experts;
}

void write_experts(const ExpertFacts& experts, Json& config) {
  config["num_experts"] = experts.count;
  config["num_experts_per_tok"] = experts.used;
  config["moe_intermediate_size"] = experts.hidden;
  config["decoder_sparse_step"] = experts.every;
  config["norm_topk_prob"] = experts.normalised;
  config["mlp_only_layers"] = experts.dense_layers;
}

}  // namespace culprit
