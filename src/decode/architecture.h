#pragma once
// What is particular to an architecture: how its facts are read, its nodes, and the names and shapes of its weights. One file each in
// architectures/, and one line in the list.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "decode/facts.h"
#include "decode/graph.h"
#include "format/gguf.h"

namespace culprit {

class HfConfig;
class HfTensors;

/// A weight of the graph and what checkpoints call it: "q", "blk.{}.attn_q.weight" and "model.layers.{}.self_attn.q_proj.weight" for every
/// layer, or "embed" once.
struct WeightEntry {
  std::string_view role;  // tap_role of its canonical name
  std::string_view gguf;  // {} stands for the layer; empty where the architecture has no GGUF form
  std::string_view hf;
  Shape (*shape)(const Facts&);
  // Where checkpoints differ from that: `hf` may have a * for the expert, of which `mlx` is the name of all of them in one tensor; or be a
  // tensor that holds `parts` weights along its second axis, of which this is number `part`. In hf_shape axes of one may be added.
  std::string_view mlx = {};
  int part = 0, parts = 1;
  Shape (*hf_shape)(const Facts&) = nullptr;
};

struct Architecture {
  std::string_view name;      // as GGUF's general.architecture
  std::string_view hf_type;   // as model_type in Hugging Face's config.json
  std::string_view hf_class;  // of transformers
  /// Error ids: gguf-invalid (a key is missing), model-unsupported. nullptr: GGUF has it under another architecture's name.
  Result<Facts> (*read_gguf)(const Gguf&);
  /// Error ids: model-unsupported, with the key.
  Result<Facts> (*read_hf)(const HfConfig&);
  /// The config.json that read_hf, transformers and mlx_lm read.
  Json (*write_hf)(const Facts&);
  /// Facts of a model for tests: small counts, few of them powers of two, every node of the architecture.
  Facts (*tiny)();
  std::vector<Node> (*nodes)(const Facts&);
  std::span<const WeightEntry> weights;
  std::span<const std::string_view> gguf_others;  // tensors beside the weights that read_gguf takes into account
  /// What only the tensors tell: changes the facts that read_hf read. nullptr: nothing.
  void (*adapt)(const HfTensors&, Facts&) = nullptr;
  std::string_view hf_wrapper = {};  // model_type of a config that has this one's under text_config, images and sound beside it
};

[[nodiscard]] std::span<const Architecture* const> architectures();
/// nullptr when there is none of that name.
[[nodiscard]] const Architecture* find_architecture(std::string_view name);

/// Whether the graph can be built: an architecture that is known, and counts that fit each other. Error ids: model-unsupported.
[[nodiscard]] Result<void> check_facts(const Facts& facts);

/// By Hugging Face's model_type; nullptr when there is none.
[[nodiscard]] const Architecture* find_hf_architecture(std::string_view model_type);
/// By the model_type of a config around the architecture's; nullptr when there is none.
[[nodiscard]] const Architecture* find_hf_wrapped(std::string_view model_type);

extern const Architecture kLlama;
extern const Architecture kMistral;
extern const Architecture kQwen2;
extern const Architecture kQwen3;
extern const Architecture kGemma3;
extern const Architecture kQwen3Moe;
extern const Architecture kQwen35;
extern const Architecture kQwen35Moe;
extern const Architecture kGemma4;

}  // namespace culprit
