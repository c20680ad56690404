#pragma once
// What the fuzz targets share.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "tensor/tensor.h"

namespace culprit::fuzz {

/// A broken promise of the code under test: the fuzzer reports an abort.
inline void require(bool promise) {
  if (!promise) std::abort();
}

/// A file in memory, with a path.
class MemoryFile {
 public:
  void put(std::string_view bytes) const {
    require(::ftruncate(descriptor_, 0) == 0);
    require(::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }
  [[nodiscard]] std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_ = ::memfd_create("input", MFD_CLOEXEC);
};

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) { return {reinterpret_cast<const char*>(data), size}; }

/// The path of a file that holds the input, until the next call.
inline std::filesystem::path file_of(const std::uint8_t* data, std::size_t size) {
  static const MemoryFile file;
  file.put(text_of(data, size));
  return file.path();
}

/// Reads every element, unless there are so many that it would take long.
inline void read_all(const Tensor& tensor) {
  constexpr std::int64_t kElementsMax = 1 << 16;
  if (tensor.count() <= kElementsMax) (void)tensor.values();
}

}  // namespace culprit::fuzz
