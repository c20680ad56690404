#pragma once
// What is particular to an architecture: how its facts are read, its nodes, and the names and shapes of its weights. One file each in
// architectures/, and one line in the list.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "decode/facts.h"
#include "decode/graph.h"
#include "format/gguf.h"

namespace culprit {

/// A weight of the graph: "q" and "blk.{}.attn_q.weight" for every layer, or "embed" and "token_embd.weight" once.
struct WeightEntry {
  std::string_view role;  // tap_role of the node that owns it
  std::string_view gguf;  // {} stands for the layer
  Shape (*shape)(const Facts&);
};

struct Architecture {
  std::string_view name;  // as GGUF's general.architecture
  /// Error ids: gguf-invalid (a key is missing), model-unsupported.
  Result<Facts> (*read_gguf)(const Gguf&);
  std::vector<Node> (*nodes)(const Facts&);
  std::span<const WeightEntry> weights;
  std::span<const std::string_view> gguf_others;  // tensors beside the weights that read_gguf takes into account
};

[[nodiscard]] std::span<const Architecture* const> architectures();
/// nullptr when there is none of that name.
[[nodiscard]] const Architecture* find_architecture(std::string_view name);

/// Whether the graph can be built: an architecture that is known, and counts that fit each other. Error ids: model-unsupported.
[[nodiscard]] Result<void> check_facts(const Facts& facts);

extern const Architecture kLlama;

}  // namespace culprit
