#pragma once
// The weights that a graph needs.
#include <string>
#include <vector>

#include "decode/graph.h"
#include "tensor/tensor.h"

namespace culprit {

/// What the checkpoint calls a weight, and the shape that the facts give it.
struct WeightSpec {
  std::string canonical;
  std::string gguf;
  Shape shape;
};
/// In graph order, each once.
[[nodiscard]] std::vector<WeightSpec> model_weights(const Graph& graph);

}  // namespace culprit
