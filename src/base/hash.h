#pragma once
// XXH3-128 for tensors, SHA-256 for libraries and models.
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"

namespace culprit {

/// 32 lower-case hex digits of XXH3-128 over `bytes`.
[[nodiscard]] std::string xxh3_128(std::span<const std::byte> bytes);
/// 64 lower-case hex digits. Error ids: file-missing.
[[nodiscard]] Result<std::string> sha256_file(const std::filesystem::path& path);
[[nodiscard]] std::string sha256(std::span<const std::byte> bytes);

}  // namespace culprit
