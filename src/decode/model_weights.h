#pragma once
// The weights that a graph needs.
#include <string>
#include <vector>

#include "decode/graph.h"
#include "tensor/tensor.h"

namespace culprit {

/// What checkpoints call a weight, and the shape that the facts give it.
struct WeightSpec {
  std::string canonical;
  std::string gguf;
  std::string hf;
  Shape shape;
  std::string mlx = {};     // one tensor for all experts, where `hf` has a * for each; empty: there is none
  int part = 0, parts = 1;  // of the tensor `hf`, along its second axis
  Shape hf_shape = {};      // what `hf` is written with; empty: shape
  bool is_bias = false;
  bool unit_offset = false;  // of a norm: 1 is added to it
};
/// In graph order, each once.
[[nodiscard]] std::vector<WeightSpec> model_weights(const Graph& graph);

/// Hugging Face names of tensors that checkpoints may hold though no node reads them: the keys' and values' of layers that share those of
/// others.
[[nodiscard]] std::vector<std::string> unused_hf_weights(const Graph& graph);

}  // namespace culprit
