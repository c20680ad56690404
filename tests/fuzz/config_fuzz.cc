// A config.json as Hugging Face has it: the facts that are accepted survive being written and read again, and a graph follows from them.
#include "base/json.h"
#include "decode/architecture.h"
#include "decode/facts_json.h"
#include "decode/hf_folder.h"
#include "decode/model_weights.h"
#include "tests/fuzz/fuzz.h"

using namespace culprit;

namespace {
/// More layers make a graph that takes long; Model::open bounds them by the tensors of the folder.
constexpr int kLayersMax = 64;
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = parse_json(fuzz::text_of(data, size));
  if (!json || !json->is_object()) return 0;
  const HfConfig config(*json, "config.json");
  (void)is_hf_wrapper(config);
  const auto facts = read_hf_facts(config);
  if (!facts) {
    fuzz::require(facts.error().id == "model-unsupported");
    return 0;
  }
  const auto written = to_json(*facts).dump();
  const auto again = facts_from_json(*parse_json(written));
  fuzz::require(again.has_value() && to_json(*again).dump() == written);
  if (const auto fit = check_facts(*facts); !fit) {
    fuzz::require(fit.error().id == "model-unsupported");
    return 0;
  }
  if (facts->layers > kLayersMax) return 0;
  const Graph graph(*facts);
  for (const auto& weight : model_weights(graph)) fuzz::require(element_count(weight.shape) >= 0);
  (void)unused_hf_weights(graph);
  return 0;
}
