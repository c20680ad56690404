#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/descriptor.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CULPRIT_ADDRESS_SANITIZER
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define CULPRIT_ADDRESS_SANITIZER
#endif
#ifdef CULPRIT_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace culprit {
namespace {
constexpr std::size_t kBufferBytes = std::size_t{1} << 16;
constexpr std::size_t kWriteBytesMax = std::size_t{1} << 30;  // macOS refuses a single write of 2 GiB or more

std::string reason_of(int error) { return std::generic_category().message(error); }

int open_retrying(const std::filesystem::path& path, int flags, mode_t mode = 0) {
  int descriptor = -1;
  do descriptor = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

tl::unexpected<Error> refused(std::string_view what, const std::filesystem::path& path, int error) {
  return fail("file-write", fmt::format("{}: {}", what, reason_of(error)), path.string(), error);
}

Result<void> write_all(int descriptor, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const auto written = ::write(descriptor, bytes.data(), std::min(bytes.size(), kWriteBytesMax));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {  // 0 for a non-empty request would loop for ever; no errno comes with it
      const int error = written < 0 ? errno : ENOSPC;
      return refused(fmt::format("{} bytes remain unwritten", bytes.size()), path, error);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

/// The last page of a mapping goes on after the file's end: the sanitizer is told, so that it sees a read there.
void forbid_rest_of_page([[maybe_unused]] const std::byte* end, [[maybe_unused]] bool forbidden) {
#ifdef CULPRIT_ADDRESS_SANITIZER
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto rest = (page - reinterpret_cast<std::uintptr_t>(end) % page) % page;
  forbidden ? __asan_poison_memory_region(end, rest) : __asan_unpoison_memory_region(end, rest);
#endif
}
}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor descriptor(open_retrying(path, O_RDONLY));
  if (descriptor.get() < 0) return fail("file-missing", fmt::format("cannot open: {}", reason_of(errno)), path.string());
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) return fail("file-missing", fmt::format("cannot read: {}", reason_of(errno)), path.string());
  if (!S_ISREG(status.st_mode)) return fail("file-missing", "not a regular file", path.string());
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = path;
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > 0) {  // a mapping of no bytes is an error to mmap
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
    if (address == MAP_FAILED) return fail("file-missing", fmt::format("cannot map: {}", reason_of(errno)), path.string());
    file->data_ = static_cast<const std::byte*>(address);
    file->size_ = size;
    forbid_rest_of_page(file->data_ + size, true);
  }
  return file;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forbid_rest_of_page(data_ + size_, false);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

Result<FileWriter> FileWriter::create(const std::filesystem::path& path) {
  FileWriter writer;
  writer.path_ = path;
  writer.temporary_ = path;
  writer.temporary_ += ".tmp";
  writer.descriptor_ = open_retrying(writer.temporary_, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (writer.descriptor_ < 0) return refused("cannot create", writer.temporary_, errno);
  return writer;
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      buffer_(std::move(other.buffer_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

FileWriter::~FileWriter() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

Result<void> FileWriter::append(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) CULPRIT_CHECK(flush());
  if (bytes.size() >= kBufferBytes) return write_now(bytes);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return {};
}

Result<void> FileWriter::append(std::string_view text) { return append(std::as_bytes(std::span(text.data(), text.size()))); }

Result<void> FileWriter::flush() {
  CULPRIT_CHECK(write_now(buffer_));
  buffer_.clear();
  return {};
}

Result<void> FileWriter::write_now(std::span<const std::byte> bytes) { return write_all(descriptor_, bytes, path_); }

Result<void> FileWriter::commit() {
  CULPRIT_CHECK(flush());
  const int closed = ::close(std::exchange(descriptor_, -1));  // network file systems report a full disk here
  int error = closed != 0 ? errno : 0;
  if (error == 0 && std::rename(temporary_.c_str(), path_.c_str()) != 0) error = errno;
  if (error == 0) return {};
  ::unlink(temporary_.c_str());
  return refused("cannot complete", path_, error);
}

Result<void> write_file_whole(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  CULPRIT_TRY(auto writer, FileWriter::create(path));
  CULPRIT_CHECK(writer.append(bytes));
  return writer.commit();
}

Result<void> write_file_whole(const std::filesystem::path& path, std::string_view text) {
  return write_file_whole(path, std::as_bytes(std::span(text.data(), text.size())));
}

Result<void> append_file(const std::filesystem::path& path, std::string_view text) {
  Descriptor descriptor(open_retrying(path, O_WRONLY | O_CREAT | O_APPEND, 0666));
  struct stat status {};
  if (descriptor.get() < 0 || ::fstat(descriptor.get(), &status) != 0) return refused("cannot append", path, errno);
  auto written = write_all(descriptor.get(), std::as_bytes(std::span(text.data(), text.size())), path);
  if (written && descriptor.close() != 0) written = refused("cannot append", path, errno);
  // By name, because a failed close has taken the descriptor. Should even this fail, readers still stop at the last whole line.
  if (!written) static_cast<void>(::truncate(path.c_str(), status.st_size) == 0);  // the comparison marks the result as seen
  return written;
}

bool is_disk_full(const Error& error) { return error.system == ENOSPC || error.system == EDQUOT || error.system == EFBIG; }

Result<std::string> read_file(const std::filesystem::path& path) {
  const Descriptor descriptor(open_retrying(path, O_RDONLY));
  if (descriptor.get() < 0) return fail("file-missing", fmt::format("cannot open: {}", reason_of(errno)), path.string());
  std::string text;
  std::vector<char> block(kBufferBytes);
  while (true) {
    const auto got = ::read(descriptor.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail("file-missing", fmt::format("cannot read: {}", reason_of(errno)), path.string());
    if (got == 0) return text;
    text.append(block.data(), static_cast<std::size_t>(got));
  }
}

// Keeps, for each prefix of the text, whether the pattern so far matches it: time is pattern times text, whatever the wildcards.
bool glob_match(std::string_view pattern, std::string_view text) {
  std::vector<char> matches(text.size() + 1, 0);
  matches[0] = 1;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '*') {
      const bool any = i + 1 < pattern.size() && pattern[i + 1] == '*';
      if (any) ++i;
      for (std::size_t n = 1; n <= text.size(); ++n)
        if (matches[n - 1] && (any || text[n - 1] != '.')) matches[n] = 1;
    } else {
      for (std::size_t n = text.size(); n > 0; --n)
        matches[n] = static_cast<char>(matches[n - 1] && (pattern[i] == '?' || pattern[i] == text[n - 1]));
      matches[0] = 0;
    }
  }
  return matches[text.size()] != 0;
}

}  // namespace culprit
