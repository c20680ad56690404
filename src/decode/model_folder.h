#pragma once
// The folder kind of a model: model.json holds its facts, model.safetensors its weights under their canonical names.
#include <filesystem>

#include "base/result.h"
#include "decode/facts.h"

namespace culprit {

inline constexpr const char* kModelFactsFile = "model.json";
inline constexpr const char* kModelTensorsFile = "model.safetensors";

/// Error ids: file-missing, json-invalid, model-unsupported.
[[nodiscard]] Result<Facts> read_model_facts(const std::filesystem::path& file);
/// Error ids: file-write.
[[nodiscard]] Result<void> write_model_facts(const std::filesystem::path& file, const Facts& facts);

}  // namespace culprit
