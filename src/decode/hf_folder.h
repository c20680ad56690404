#pragma once
// A folder as Hugging Face and MLX have it: config.json, and model.safetensors or the shards that model.safetensors.index.json lists.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "decode/architectures/hf_config.h"
#include "decode/facts.h"
#include "decode/model_weights.h"
#include "format/safetensors.h"
#include "format/weight.h"

namespace culprit {

inline constexpr const char* kHfConfigFile = "config.json";
inline constexpr const char* kHfTensorsFile = "model.safetensors";
inline constexpr const char* kHfIndexFile = "model.safetensors.index.json";

/// config.json as it stands. Error ids: file-missing, json-invalid.
[[nodiscard]] Result<HfConfig> read_hf_config(const std::filesystem::path& folder);
/// Whether the config is of a kind of models of text, images and sound, whose tensors have names behind a prefix; the text's own config may
/// be under text_config.
[[nodiscard]] bool is_hf_wrapper(const HfConfig& config);
/// Of the text. Error ids: model-unsupported, with the key.
[[nodiscard]] Result<Facts> read_hf_facts(const HfConfig& config);

/// The tensors of all shards.
class HfTensors {
 public:
  /// Error ids: file-missing, json-invalid, safetensors-invalid, model-unsupported.
  [[nodiscard]] static Result<HfTensors> open(const std::filesystem::path& folder, bool in_wrapper = false);
  /// What this folder calls a tensor of the text model ("model.norm.weight"). In a wrapper transformers has "model.language_model." for
  /// "model.", and MLX has "language_model." before it. The name itself when the tensor is not there.
  [[nodiscard]] std::string spelled(const std::string& name) const;
  /// Whether a tensor of a wrapper is of its images or sound.
  [[nodiscard]] bool is_beside_text(std::string_view name) const;
  [[nodiscard]] bool contains(const std::string& name) const { return tensors_.contains(name); }
  [[nodiscard]] const std::map<std::string, Tensor>& all() const { return tensors_; }
  /// The weight of that name: dense in a float dtype, or what MLX's affine quantisation made of it, `.weight` with `.scales` and `.biases`
  /// beside it. Error ids: model-unsupported, with the tensor or the config's key.
  [[nodiscard]] Result<Weight> weight(const std::string& name, const HfConfig& config) const;
  /// The weight that `spec` describes, of one tensor or several, whose names are appended to `used`; a model of text inside of another one
  /// may have its names behind a prefix. Error ids: model-unsupported.
  [[nodiscard]] Result<Weight> weight(const WeightSpec& spec, const HfConfig& config, std::vector<std::string>& used) const;

 private:
  [[nodiscard]] Result<Weight> stacked(const WeightSpec& spec, const HfConfig& config, std::vector<std::string>& used) const;
  [[nodiscard]] Result<void> add_file(const std::filesystem::path& path);
  [[nodiscard]] tl::unexpected<Error> unsupported(const std::string& message) const;
  std::filesystem::path folder_;
  bool in_wrapper_ = false;
  std::map<std::string, Tensor> tensors_;
};

/// The tensors besides the weight itself that hold the weight of that name.
[[nodiscard]] std::vector<std::string> quantized_parts(const std::string& name);

}  // namespace culprit
