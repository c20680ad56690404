#pragma once
// XXH3-128 for tensors, SHA-256 for libraries and models.
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace culprit {

/// 32 lower-case hex digits of XXH3-128 over `bytes`.
[[nodiscard]] std::string xxh3_128(std::span<const std::byte> bytes);
/// The same hash of bytes that come in pieces: it does not depend on where they are cut.
class Xxh3Stream {
 public:
  Xxh3Stream();
  void add(std::span<const std::byte> bytes);
  [[nodiscard]] std::string finish() const;

 private:
  std::shared_ptr<void> state_;
};
/// 64 lower-case hex digits. Error ids: file-missing.
[[nodiscard]] Result<std::string> sha256_file(const std::filesystem::path& path);
[[nodiscard]] std::string sha256(std::span<const std::byte> bytes);

}  // namespace culprit
