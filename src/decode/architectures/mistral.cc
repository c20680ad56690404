// Mistral: the llama graph, with a window on every layer where the config has one. In GGUF it is a llama.
#include "decode/architectures/decoder.h"
#include "decode/architectures/hf_config.h"
#include "decode/model.h"

namespace culprit {
namespace {
constexpr auto kWeights = decoder::hf_only(decoder::weights_with(decoder::kMlpNorm));

std::vector<Node> nodes_of(const Facts& facts) { return decoder::nodes(facts, {}); }

Result<Facts> read_hf(const HfConfig& config) {
  CULPRIT_TRY(auto facts, read_facts(config, kMistral.name, {}));
  CULPRIT_TRY(const int window, config.count("sliding_window", 0));
  if (!config.has("layer_types")) facts.window = window;  // every layer slides
  CULPRIT_CHECK(read_layer_types(config, window, facts));
  return facts;
}

Json write_hf(const Facts& facts) {
  auto config = write_facts(facts, kMistral.hf_type, kMistral.hf_class);
  config["sliding_window"] = facts.window > 0 ? Json(facts.window) : Json();
  return config;
}

Facts tiny() {
  auto facts = tiny_llama_facts();
  facts.architecture = kMistral.name;
  facts.window = 4;
  return facts;
}
}  // namespace

const Architecture kMistral = {.name = "mistral",
                               .hf_type = "mistral",
                               .hf_class = "MistralForCausalLM",
                               .read_gguf = nullptr,
                               .read_hf = read_hf,
                               .write_hf = write_hf,
                               .tiny = tiny,
                               .nodes = nodes_of,
                               .weights = kWeights,
                               .gguf_others = {}};

}  // namespace culprit
