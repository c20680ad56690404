#pragma once
// Whole files: memory-mapped reads, writes that are all or nothing.
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace culprit {

/// A read-only mapping of a whole file; the bytes live as long as the object.
class MappedFile {
 public:
  /// Error ids: file-missing.
  [[nodiscard]] static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  MappedFile() = default;
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Streams into PATH.tmp; commit() renames it to PATH. Destroyed or failed before that, it removes PATH.tmp, so PATH is whole or as it was.
class FileWriter {
 public:
  /// Error ids of all three: file-write, with the system's reason.
  [[nodiscard]] static Result<FileWriter> create(const std::filesystem::path& path);
  [[nodiscard]] Result<void> append(std::span<const std::byte> bytes);
  [[nodiscard]] Result<void> append(std::string_view text);
  [[nodiscard]] Result<void> commit();
  ~FileWriter();
  FileWriter(FileWriter&& other) noexcept;
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  FileWriter& operator=(FileWriter&&) = delete;

 private:
  FileWriter() = default;
  [[nodiscard]] Result<void> flush();
  [[nodiscard]] Result<void> write_now(std::span<const std::byte> bytes);

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::vector<std::byte> buffer_;  // gathers small appends
  int descriptor_ = -1;            // -1: committed or moved from
};

/// Writes to PATH.tmp, then renames: after a crash the file is whole or absent. Error ids: file-write.
[[nodiscard]] Result<void> write_file_whole(const std::filesystem::path& path, std::span<const std::byte> bytes);
[[nodiscard]] Result<void> write_file_whole(const std::filesystem::path& path, std::string_view text);
/// Appends to a file that it makes if missing; after a failure the file is as it was. One writer at a time. Error ids: file-write.
[[nodiscard]] Result<void> append_file(const std::filesystem::path& path, std::string_view text);
/// True for an error of the writers above that says there is no room: disk, quota or file size limit.
[[nodiscard]] bool is_disk_full(const Error& error);
/// Error ids: file-missing.
[[nodiscard]] Result<std::string> read_file(const std::filesystem::path& path);

/// `*` matches any run of characters but '.', `**` any run, `?` one character. Used for tap names.
[[nodiscard]] bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace culprit
