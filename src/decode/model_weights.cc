#include "decode/model_weights.h"

#include <algorithm>
#include <cassert>
#include <set>

#include "decode/architecture.h"

namespace culprit {
namespace {
std::string with_layer(std::string_view name, int layer) {
  std::string filled(name);
  if (const auto hole = filled.find("{}"); hole != std::string::npos) filled.replace(hole, 2, std::to_string(layer));
  return filled;
}
}  // namespace

std::vector<WeightSpec> model_weights(const Graph& graph) {
  const auto* architecture = find_architecture(graph.facts().architecture);
  std::vector<WeightSpec> specs;
  std::set<std::string> seen;
  for (const auto& node : graph.nodes())
    for (const auto* canonical : {&node.weight, &node.bias}) {
      if (canonical->empty() || !seen.insert(*canonical).second) continue;
      const auto role = tap_role(*canonical);
      const auto entry =
          std::find_if(architecture->weights.begin(), architecture->weights.end(), [&](const auto& e) { return e.role == role; });
      assert(entry != architecture->weights.end() && "a node whose weight the architecture does not list");
      specs.push_back({.canonical = *canonical,
                       .gguf = with_layer(entry->gguf, node.layer),
                       .hf = with_layer(entry->hf, node.layer),
                       .shape = entry->shape(facts_of_layer(graph.facts(), node.layer)),
                       .mlx = with_layer(entry->mlx, node.layer),
                       .part = entry->part,
                       .parts = entry->parts,
                       .hf_shape = entry->hf_shape == nullptr ? Shape{} : entry->hf_shape(graph.facts()),
                       .is_bias = canonical == &node.bias,
                       .unit_offset = node.unit_offset});
    }
  return specs;
}

std::vector<std::string> unused_hf_weights(const Graph& graph) {
  const auto& facts = graph.facts();
  std::vector<std::string> names;
  for (int layer = facts.layers - facts.kv_shared_layers; layer < facts.layers; ++layer)
    for (const auto& entry : find_architecture(facts.architecture)->weights)
      if (entry.role == "k" || entry.role == "v" || entry.role == "k_norm") names.push_back(with_layer(entry.hf, layer));
  return names;
}

}  // namespace culprit
