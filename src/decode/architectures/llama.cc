// Llama 1 to 3, and what has its graph (SmolLM2; Mistral in GGUF): pre-norm blocks, rotary grouped-query attention, SwiGLU.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "decode/architectures/decoder.h"
#include "decode/architectures/gguf_facts.h"
#include "decode/architectures/hf_config.h"
#include "decode/model.h"
#include "decode/ops.h"

namespace culprit {
namespace {
constexpr auto kWeights = decoder::weights_with(decoder::kMlpNorm);
constexpr std::string_view kRopeFactors = "rope_freqs.weight";
constexpr std::string_view kOthers[] = {kRopeFactors};

std::vector<Node> nodes_of(const Facts& facts) { return decoder::nodes(facts, {}); }

/// Llama 3.1's scaling, which converters write out as one divisor for each frequency. The parameters are those that give these divisors;
/// low and high factor 1 and 4 and the original context 8192 are the only ones ever published.
Result<void> recognise_llama3(const Gguf& file, RopeFacts& rope) {
  CULPRIT_TRY(const auto weight, file.weight(std::string(kRopeFactors)));
  const auto divisors = weight.to_f32().values();
  const auto unknown = [&] {
    return fail("model-unsupported", fmt::format("tensor {} holds frequency divisors that are not Llama 3.1's", kRopeFactors),
                file.path().string());
  };
  if (divisors.size() != static_cast<std::size_t>(rope.dims) / 2) return unknown();  // before a table of as many entries is made
  auto candidate = rope;
  candidate.scaling = RopeScaling::llama3;
  candidate.factor = divisors.empty() ? 0 : *std::max_element(divisors.begin(), divisors.end());
  const auto plain = rope_frequencies(rope);
  const auto scaled = rope_frequencies(candidate);
  bool matches = rope.scaling == RopeScaling::none && candidate.factor > 0;
  // The converter computes in f32 and Python floats: a few roundings of f32, and the smooth part subtracts two numbers of up to 4.
  const double bound = 16 * rounding_of(DType::f32).unit;
  for (std::size_t i = 0; matches && i < plain.size(); ++i) {
    const double expected = plain[i] / scaled[i];
    matches = std::abs(divisors[i] - expected) <= bound * candidate.factor * expected;
  }
  if (!matches) return unknown();
  rope = candidate;
  return {};
}

Result<Facts> read_gguf(const Gguf& file) {
  // Converters permute the rows of q and k, so that channels pair as (2i, 2i + 1).
  CULPRIT_TRY(auto facts, gguf::read_facts(file, kLlama.name, RopePairing::interleaved));
  if (file.find(std::string(kRopeFactors)) != nullptr && facts.rope.dims > 0) CULPRIT_CHECK(recognise_llama3(file, facts.rope));
  return facts;
}

Result<Facts> read_hf(const HfConfig& config) {
  CULPRIT_TRY(auto facts, read_facts(config, kLlama.name, {}));
  CULPRIT_TRY(const int window, config.count("sliding_window", 0));
  CULPRIT_CHECK(read_layer_types(config, window, facts));  // a window without layer_types means nothing here
  return facts;
}

Json write_hf(const Facts& facts) { return write_facts(facts, kLlama.hf_type, kLlama.hf_class); }
}  // namespace

const Architecture kLlama = {.name = "llama",
                             .hf_type = "llama",
                             .hf_class = "LlamaForCausalLM",
                             .read_gguf = read_gguf,
                             .read_hf = read_hf,
                             .write_hf = write_hf,
                             .tiny = tiny_llama_facts,
                             .nodes = nodes_of,
                             .weights = kWeights,
                             .gguf_others = kOthers};

}  // namespace culprit
