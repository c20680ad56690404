#include "base/hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <iterator>
#include <memory>
#include <new>
#include <system_error>
#include <vector>

namespace culprit {
namespace {
std::string hex(std::span<const unsigned char> digest) {
  std::string text;
  for (const auto byte : digest) fmt::format_to(std::back_inserter(text), "{:02x}", byte);
  return text;
}

std::string hex(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  return hex(std::span<const unsigned char>(canonical.digest));
}

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }
  void add(std::span<const std::byte> bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  [[nodiscard]] std::string finish() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &size);
    return hex({digest, size});
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};
}  // namespace

std::string xxh3_128(std::span<const std::byte> bytes) { return hex(XXH3_128bits(bytes.data(), bytes.size())); }

Xxh3Stream::Xxh3Stream() : state_(XXH3_createState(), [](void* state) { XXH3_freeState(static_cast<XXH3_state_t*>(state)); }) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_.get()));
}

void Xxh3Stream::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_.get()), bytes.data(), bytes.size());
}

std::string Xxh3Stream::finish() const { return hex(XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_.get()))); }

std::string sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.finish();
}

Result<std::string> sha256_file(const std::filesystem::path& path) {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (!file) return fail("file-missing", fmt::format("cannot open: {}", std::generic_category().message(errno)), path.string());
  Sha256 hash;
  std::vector<std::byte> block(std::size_t{1} << 20);
  while (const auto got = std::fread(block.data(), 1, block.size(), file.get())) hash.add(std::span(block).first(got));
  if (std::ferror(file.get()))
    return fail("file-missing", fmt::format("cannot read: {}", std::generic_category().message(errno)), path.string());
  return hash.finish();
}

}  // namespace culprit
