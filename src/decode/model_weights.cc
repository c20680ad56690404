#include "decode/model_weights.h"

#include <algorithm>
#include <cassert>
#include <set>

#include "decode/architecture.h"

namespace culprit {

std::vector<WeightSpec> model_weights(const Graph& graph) {
  const auto* architecture = find_architecture(graph.facts().architecture);
  std::vector<WeightSpec> specs;
  std::set<std::string> seen;
  for (const auto& node : graph.nodes()) {
    if (node.weight.empty() || !seen.insert(node.weight).second) continue;
    const auto role = tap_role(node.weight);
    const auto entry =
        std::find_if(architecture->weights.begin(), architecture->weights.end(), [&](const auto& e) { return e.role == role; });
    assert(entry != architecture->weights.end() && "a node whose weight the architecture does not list");
    std::string gguf(entry->gguf);
    if (const auto hole = gguf.find("{}"); hole != std::string::npos) gguf.replace(hole, 2, std::to_string(node.layer));
    specs.push_back({node.weight, std::move(gguf), entry->shape(graph.facts())});
  }
  return specs;
}

}  // namespace culprit
