#pragma once
// A checkpoint opened for decoding: its facts, graph, and weights under canonical names ("w.layers.0.q").
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "decode/graph.h"
#include "format/gguf.h"
#include "format/weight.h"

namespace culprit {

class Model {
 public:
  /// A GGUF file; a folder with config.json, as Hugging Face and MLX have it; or one with model.json, as write_random_model makes it. Error
  /// ids: model-missing, model-unsupported, and the readers'.
  [[nodiscard]] static Result<Model> open(const std::filesystem::path& path);

  [[nodiscard]] const Facts& facts() const { return graph_->facts(); }
  [[nodiscard]] const Graph& graph() const { return *graph_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Canonical names in graph order, each once.
  [[nodiscard]] const std::vector<std::string>& weight_names() const { return weight_names_; }
  /// The name that the checkpoint uses ("blk.0.attn_q.weight").
  [[nodiscard]] std::string checkpoint_name(const std::string& canonical) const;
  /// Canonical name of a checkpoint's tensor, or empty.
  [[nodiscard]] std::string canonical_name(const std::string& checkpoint) const;
  [[nodiscard]] Result<Weight> weight(const std::string& canonical, const GgufReadFault& fault = {}) const;
  /// "gguf", "hf" or "folder".
  [[nodiscard]] const std::string& kind() const { return kind_; }

 private:
  [[nodiscard]] static Result<Model> open_gguf(const std::filesystem::path& path);
  [[nodiscard]] static Result<Model> open_hf(const std::filesystem::path& path);
  [[nodiscard]] static Result<Model> open_folder(const std::filesystem::path& path);

  std::filesystem::path path_;
  std::string kind_;
  std::shared_ptr<const Graph> graph_;
  std::vector<std::string> weight_names_;
  std::map<std::string, std::string> checkpoint_names_;
  std::shared_ptr<const Gguf> gguf_;
  std::shared_ptr<const std::map<std::string, Weight>> weights_;  // canonical; empty for GGUF
};

/// A random model for tests and model-free runs: every matrix normal with the scale 1/sqrt(fan_in), what norms multiply by around 1, biases
/// around 0, seeded by tensor name; f32; the same bits on every platform.
struct RandomModel {
  Facts facts;
  std::uint64_t seed = 1;
  int bits = 0;  // of a Hugging Face folder's linear weights, 2, 4 or 8, as MLX quantises them; 0: all are dense
};
inline constexpr int kRandomModelGroup = 32;
/// Hidden 48, 3 layers, 6 heads, 3 kv heads (not powers of two), head 8, mlp 80, vocab 97.
[[nodiscard]] Facts tiny_llama_facts();
/// The facts of a tiny model at a size that takes seconds: hidden 256, 6 layers, 8 heads, 4 kv heads, head 4 times as wide, mlp 688, vocab
/// 2048, a window of 64.
[[nodiscard]] Facts small_facts(Facts tiny);
/// Writes a folder that Model::open reads, with any facts. Error ids: file-write.
[[nodiscard]] Result<void> write_random_model(const std::filesystem::path& folder, const RandomModel& spec);
/// The same weights as a Hugging Face folder, which mlx_lm and transformers load too. Its rope pairs halves. With `bits`, the weights of
/// linear layers and experts whose rows are whole groups of kRandomModelGroup are quantised (decode/affine_groups.h), the others stay dense. Error ids:
/// file-write; model-unsupported when no weight can be quantised.
[[nodiscard]] Result<void> write_random_hf_model(const std::filesystem::path& folder, const RandomModel& spec);

}  // namespace culprit
