#pragma once
// A Hugging Face config.json: the values that decide what decoding means, read strictly, and the same written. Keys that change nothing here
// (dropout, token ids, versions) are passed over.
#include <filesystem>
#include <initializer_list>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "decode/facts.h"

namespace culprit {

/// Null and absent are the same. All errors are model-unsupported and name the key.
class HfConfig {
 public:
  HfConfig(const Json& json, std::filesystem::path file) : json_(json), file_(std::move(file)) {}

  [[nodiscard]] const std::filesystem::path& file() const { return file_; }
  [[nodiscard]] bool has(const std::string& key) const { return find(key) != nullptr; }
  /// nullptr when there is no such value.
  [[nodiscard]] const Json* find(const std::string& key) const;
  [[nodiscard]] Result<int> count(const std::string& key) const;
  [[nodiscard]] Result<int> count(const std::string& key, int otherwise) const;
  [[nodiscard]] Result<double> number(const std::string& key, double otherwise) const;
  [[nodiscard]] Result<bool> flag(const std::string& key, bool otherwise) const;
  [[nodiscard]] Result<std::string> text(const std::string& key, const std::string& otherwise) const;
  /// An object inside, as a config of its own.
  [[nodiscard]] Result<HfConfig> object(const std::string& key) const;
  /// The config without a key that its caller has read, in it and in its rope_parameters.
  [[nodiscard]] HfConfig without(const std::string& key) const;
  /// When there is a value it must be this one.
  [[nodiscard]] Result<void> expect(const std::string& key, const Json& only) const;
  [[nodiscard]] tl::unexpected<Error> unsupported(const std::string& key, const std::string& message) const;

 private:
  Json json_;
  std::filesystem::path file_;
};

/// What a class of transformers takes when the key is absent.
struct HfDefaults {
  bool tied_head = false;
  int head_channels = 0;  // 0: hidden / heads
  double rope_base = 10000;
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  bool has_mlp = true;  // intermediate_size is needed
};

/// Counts, norm, head, and rope (rope_theta with rope_scaling, or rope_parameters) in the pairing `half` of all Hugging Face checkpoints.
[[nodiscard]] Result<Facts> read_facts(const HfConfig& config, std::string_view architecture, const HfDefaults& defaults);
/// `layer_type`: whose parameters inside rope_parameters are meant, where these are by type of layer.
[[nodiscard]] Result<RopeFacts> read_rope(const HfConfig& config, int dims, double base, const std::string& layer_type = {});
/// Sets window and full_every from layer_types, where there are any, with `window` for those that slide. What the facts say already must
/// agree.
[[nodiscard]] Result<void> read_layer_types(const HfConfig& config, int window, Facts& facts);
/// Qwen's spelling: use_sliding_window, sliding_window, max_window_layers.
[[nodiscard]] Result<void> read_qwen_window(const HfConfig& config, Facts& facts);
void write_qwen_window(const Facts& facts, Json& config);

/// The config that read_facts reads.
[[nodiscard]] Json write_facts(const Facts& facts, std::string_view model_type, std::string_view model_class);
/// Rope scaling of the type proportional, as read_rope reads it.
[[nodiscard]] Json write_proportional(const RopeFacts& rope);
/// A number as transformers wants its counts: without a fraction where there is none.
[[nodiscard]] Json whole(double value);
/// layer_types: one text for each layer.
[[nodiscard]] Json layer_types(const Facts& facts);

}  // namespace culprit
