#pragma once
// What the fuzz targets share.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/test_dir.h"
#include "tensor/tensor.h"

namespace culprit::fuzz {

/// Between the files of an input that stands for several.
inline constexpr char kSeparator = '\x1e';

/// A broken promise of the code under test: the fuzzer reports an abort.
inline void require(bool promise) {
  if (!promise) std::abort();
}

/// A file in memory, with a path.
class MemoryFile {
 public:
  MemoryFile() = default;
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }

  /// The file holds `bytes`, and zeros up to `size` if that is more; whoever reads from the descriptor begins at the start.
  void put(std::string_view bytes, std::size_t size = 0) const {
    require(::ftruncate(descriptor_, 0) == 0);
    require(::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    if (size > bytes.size()) require(::ftruncate(descriptor_, static_cast<off_t>(size)) == 0);
    require(::lseek(descriptor_, 0, SEEK_SET) == 0);
  }
  [[nodiscard]] std::string text() const {
    std::string text(static_cast<std::size_t>(::lseek(descriptor_, 0, SEEK_END)), '\0');
    require(::pread(descriptor_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
    return text;
  }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_ = ::memfd_create("input", MFD_CLOEXEC);
};

/// A folder of files in memory.
class MemoryFolder {
 public:
  MemoryFolder(std::initializer_list<std::string> names) : files_(names.size()) {
    std::size_t i = 0;
    for (const auto& name : names) std::filesystem::create_symlink(files_[i++].path(), dir_ / name);
  }
  [[nodiscard]] const MemoryFile& file(std::size_t index) const { return files_[index]; }
  [[nodiscard]] const std::filesystem::path& path() const { return dir_.path(); }

 private:
  TestDir dir_;
  std::vector<MemoryFile> files_;
};

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) { return {reinterpret_cast<const char*>(data), size}; }

/// The path of a file that holds the input, until the next call.
inline std::filesystem::path file_of(const std::uint8_t* data, std::size_t size) {
  static const MemoryFile file;
  file.put(text_of(data, size));
  return file.path();
}

/// At most `count` parts; the last one holds what follows.
inline std::vector<std::string_view> parts_of(std::string_view input, std::size_t count) {
  std::vector<std::string_view> parts;
  for (auto end = input.find(kSeparator); parts.size() + 1 < count && end != input.npos; end = input.find(kSeparator)) {
    parts.push_back(input.substr(0, end));
    input.remove_prefix(end + 1);
  }
  parts.push_back(input);
  return parts;
}

/// Reads every element, unless there are so many that it would take long.
inline void read_all(const Tensor& tensor) {
  constexpr std::int64_t kElementsMax = 1 << 16;
  if (tensor.count() <= kElementsMax) (void)tensor.values();
}

}  // namespace culprit::fuzz
