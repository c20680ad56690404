// Qwen 3, dense: the llama graph with norms over the channels of q and k heads, whose size is the config's. In GGUF channels pair as in
// Hugging Face's checkpoints: nothing is permuted.
#include "decode/architectures/decoder.h"
#include "decode/architectures/gguf_facts.h"
#include "decode/architectures/hf_config.h"
#include "decode/model.h"

namespace culprit {
namespace {
constexpr auto kWeights = decoder::weights_with(decoder::kMlpNorm, decoder::kQNorm, decoder::kKNorm);

std::vector<Node> nodes_of(const Facts& facts) { return decoder::nodes(facts, {.qk_norm = true}); }

Result<Facts> read_gguf(const Gguf& file) { return gguf::read_facts(file, kQwen3.name, RopePairing::half); }

Result<Facts> read_hf(const HfConfig& config) {
  CULPRIT_TRY(auto facts, read_facts(config, kQwen3.name, {.head_channels = 128}));
  CULPRIT_CHECK(read_qwen_window(config, facts));
  return facts;
}

Json write_hf(const Facts& facts) {
  auto config = write_facts(facts, kQwen3.hf_type, kQwen3.hf_class);
  write_qwen_window(facts, config);
  return config;
}

Facts tiny() {
  auto facts = tiny_llama_facts();
  facts.architecture = kQwen3.name;
  facts.head_channels = facts.rope.dims = 12;
  facts.tied_head = true;
  return facts;
}
}  // namespace

const Architecture kQwen3 = {.name = "qwen3",
                             .hf_type = "qwen3",
                             .hf_class = "Qwen3ForCausalLM",
                             .read_gguf = read_gguf,
                             .read_hf = read_hf,
                             .write_hf = write_hf,
                             .tiny = tiny,
                             .nodes = nodes_of,
                             .weights = kWeights,
                             .gguf_others = {}};

}  // namespace culprit
