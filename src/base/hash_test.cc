#include "base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/test_dir.h"

namespace culprit {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

// FIPS 180-2, appendix B, and the empty message.
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(sha256({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256(bytes_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(bytes_of(std::string(1'000'000, 'a'))), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, OfAFileIsThatOfItsBytes) {
  const TestDir dir;
  for (const std::size_t size : {0u, 1u, (1u << 20) - 1, 1u << 20, 3'000'001u}) {
    std::string text(size, ' ');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i % 251);
    ASSERT_TRUE(write_file_whole(dir / "a", text));
    EXPECT_EQ(sha256_file(dir / "a").value(), sha256(bytes_of(text))) << size;
  }
  EXPECT_EQ(sha256_file(dir / "absent").error().id, "file-missing");
  EXPECT_EQ(sha256_file(dir.path()).error().id, "file-missing");
}

// Made with python-xxhash; the first is also in xxHash's own documentation.
TEST(Xxh3, KnownAnswers) {
  std::vector<std::byte> ramp(1024);
  for (std::size_t i = 0; i < ramp.size(); ++i) ramp[i] = static_cast<std::byte>(i);
  EXPECT_EQ(xxh3_128({}), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(xxh3_128(bytes_of("abc")), "06b05ab6733a618578af5f94892f3950");
  EXPECT_EQ(xxh3_128(ramp), "83885e853bb6640ca870f92984398d22");
}

TEST(Xxh3Stream, DoesNotDependOnTheCuts) {
  std::vector<std::byte> bytes(5000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i % 251);
  for (const std::size_t piece : {1u, 7u, 64u, 1024u, 4999u, 5000u}) {
    Xxh3Stream stream;
    for (std::size_t at = 0; at < bytes.size(); at += piece) stream.add(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
    EXPECT_EQ(stream.finish(), xxh3_128(bytes)) << piece;
  }
  EXPECT_EQ(Xxh3Stream().finish(), xxh3_128({}));
}

}  // namespace
}  // namespace culprit
