#include "format/gguf.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/test_dir.h"
#include "format/gguf_builder.h"

namespace culprit {
namespace {

Result<Gguf> open_bytes(const TestDir& dir, const std::string& bytes) {
  std::ofstream(dir / "a.gguf", std::ios::binary) << bytes;
  return Gguf::open(dir / "a.gguf");
}

std::string array_of(std::uint32_t type, std::uint64_t count, const std::string& elements) { return raw(type) + raw(count) + elements; }

/// Every value type, and a tensor of every shape of block.
GgufBuilder sample(std::uint32_t version = 3, std::uint64_t alignment = 32) {
  GgufBuilder builder(version, alignment);
  builder.entry("t.u8", 0, raw<std::uint8_t>(200))
      .entry("t.i8", 1, raw<std::int8_t>(-100))
      .entry("t.u16", 2, raw<std::uint16_t>(60000))
      .entry("t.i16", 3, raw<std::int16_t>(-30000))
      .entry("t.u32", 4, raw<std::uint32_t>(4000000000u))
      .entry("t.i32", 5, raw<std::int32_t>(-2000000000))
      .entry("t.f32", 6, raw(0.1f))
      .entry("t.bool", 7, raw<std::uint8_t>(1))
      .entry("t.text", 8, raw_text("tokens \xe2\x96\x81 \n"))
      .entry("t.numbers", 9, array_of(5, 3, raw<std::int32_t>(-1) + raw<std::int32_t>(2) + raw<std::int32_t>(3)))
      .entry("t.texts", 9, array_of(8, 2, raw_text("a") + raw_text("")))
      .entry("t.flags", 9, array_of(7, 2, std::string("\1\0", 2)))
      .entry("t.u64", 10, raw<std::uint64_t>(0xfedcba9876543210u))
      .entry("t.i64", 11, raw<std::int64_t>(-5'000'000'000))
      .entry("t.f64", 12, raw(0.1))
      .tensor("dense", {3, 2}, 0, std::string(24, '\1'))
      .tensor("blocks", {64, 2}, 3, std::string(80, '\2'))
      .tensor("half", {5}, 1, std::string(10, '\3'));
  return builder;
}

TEST(Gguf, GivesBackEveryValueAndTensor) {
  const TestDir dir;
  for (const std::uint32_t version : {2u, 3u}) {
    for (const std::uint64_t alignment : {8u, 32u, 256u}) {
      const auto bytes = sample(version, alignment).bytes();
      const auto file = open_bytes(dir, bytes);
      ASSERT_TRUE(file) << to_string(file.error());
      const auto& values = file->metadata();
      EXPECT_EQ(values.at("t.u8"), GgufValue(std::uint64_t{200}));
      EXPECT_EQ(values.at("t.i8"), GgufValue(std::int64_t{-100}));
      EXPECT_EQ(values.at("t.u16"), GgufValue(std::uint64_t{60000}));
      EXPECT_EQ(values.at("t.i16"), GgufValue(std::int64_t{-30000}));
      EXPECT_EQ(values.at("t.u32"), GgufValue(std::uint64_t{4000000000u}));
      EXPECT_EQ(values.at("t.i32"), GgufValue(std::int64_t{-2000000000}));
      EXPECT_EQ(values.at("t.f32"), GgufValue(static_cast<double>(0.1f)));
      EXPECT_EQ(values.at("t.bool"), GgufValue(true));
      EXPECT_EQ(values.at("t.text"), GgufValue(std::string("tokens \xe2\x96\x81 \n")));
      EXPECT_EQ(values.at("t.numbers"), GgufValue(std::vector<double>{-1, 2, 3}));
      EXPECT_EQ(values.at("t.texts"), GgufValue(std::vector<std::string>{"a", ""}));
      EXPECT_EQ(values.at("t.flags"), GgufValue(std::vector<double>{1, 0}));
      EXPECT_EQ(values.at("t.u64"), GgufValue(std::uint64_t{0xfedcba9876543210u}));
      EXPECT_EQ(values.at("t.i64"), GgufValue(std::int64_t{-5'000'000'000}));
      EXPECT_EQ(values.at("t.f64"), GgufValue(0.1));
      EXPECT_EQ(file->number("t.i8").value(), -100);
      EXPECT_EQ(file->number("t.u32").value(), 4e9);
      EXPECT_EQ(file->number("t.bool").error().id, "gguf-invalid");
      EXPECT_EQ(file->number("absent").error().id, "gguf-invalid");
      EXPECT_EQ(file->text("t.u8").error().id, "gguf-invalid");
      ASSERT_EQ(file->tensors().size(), 3u);
      const auto* blocks = file->find("blocks");
      ASSERT_NE(blocks, nullptr);
      EXPECT_EQ(blocks->shape, (Shape{2, 64}));
      EXPECT_EQ(blocks->type_name, "Q4_1");
      EXPECT_EQ(blocks->bytes, 80u);
      EXPECT_EQ(bytes.substr(blocks->offset, blocks->bytes), std::string(80, '\2'));
      EXPECT_EQ(blocks->offset % alignment, 0u);
      EXPECT_EQ(file->find("absent"), nullptr);
    }
  }
}

TEST(Gguf, DropsTheContentOfHugeArraysOnly) {
  const TestDir dir;
  const std::uint64_t kept = 1 << 20;
  for (const auto count : {kept, kept + 1}) {
    GgufBuilder builder;
    builder.entry("long", 9, array_of(0, count, std::string(count, '\7'))).u32("after", 42);
    const auto file = open_bytes(dir, builder.bytes());
    ASSERT_TRUE(file) << to_string(file.error());
    EXPECT_EQ(std::get<std::vector<double>>(file->metadata().at("long")).size(), count == kept ? count : 0);
    EXPECT_EQ(file->number("after").value(), 42);
  }
}

TEST(Gguf, TruncatedAnywhereIsAnErrorWithTheFileAndAnOffset) {
  const TestDir dir;
  const auto whole = sample().bytes();
  ASSERT_TRUE(open_bytes(dir, whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto file = open_bytes(dir, whole.substr(0, size));
    ASSERT_FALSE(file) << size;
    EXPECT_EQ(file.error().id, "gguf-invalid") << size;
    EXPECT_NE(file.error().where.find("a.gguf @ "), std::string::npos) << size << ": " << file.error().where;
  }
}

TEST(Gguf, SurvivesEveryDamagedByte) {
  const TestDir dir;
  const auto whole = sample().bytes();
  std::size_t refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char damage : {'\0', '\xff'}) {
      auto bytes = whole;
      bytes[at] = damage;
      const auto file = open_bytes(dir, bytes);
      if (!file) {
        ++refused;
        continue;
      }
      for (const auto& tensor : file->tensors())
        if (const auto weight = file->weight(tensor.name)) (void)weight->hash_f32();
    }
  }
  EXPECT_GT(refused, whole.size() / 2);
}

struct Damage {
  const char* what;
  std::string bytes;
  const char* id;
  const char* message;  // a part of it
};

TEST(Gguf, SaysWhatIsWrong) {
  const TestDir dir;
  const auto good = sample().bytes();
  const auto patched = [&](std::size_t at, const std::string& bytes) {
    auto copy = good;
    copy.replace(at, bytes.size(), bytes);
    return copy;
  };
  const auto with_entry = [](std::uint32_t type, const std::string& value) { return GgufBuilder().entry("k", type, value).bytes(); };
  const auto with_tensor = [](std::vector<std::uint64_t> shape, std::uint32_t type, std::size_t data_bytes) {
    return GgufBuilder().tensor("t", shape, type, std::string(data_bytes, '\0')).bytes();
  };
  const std::uint64_t huge = ~std::uint64_t{0};
  // The last field of the only tensor's entry is its offset: the 8 bytes before the padding. 24 header + 8 + 1 + 4 + 8 + 4 = 49.
  auto far = with_tensor({4}, 0, 16);
  far.replace(49, 8, raw<std::uint64_t>(32));
  auto farther = with_tensor({4}, 0, 16);
  farther.replace(49, 8, raw(huge - 31));
  auto crooked = with_tensor({4}, 0, 64);
  crooked.replace(49, 8, raw<std::uint64_t>(8));
  auto overlapping = GgufBuilder().tensor("t", {16}, 0, std::string(64, '\0')).tensor("u", {8}, 0, std::string(32, '\0')).bytes();
  overlapping.replace(49 + 8 + 8 + 1 + 4 + 8 + 4, 8, raw<std::uint64_t>(32));
  const Damage damages[] = {
      {"magic", patched(0, "GGML"), "gguf-invalid", "magic"},
      {"version 1", patched(4, raw<std::uint32_t>(1)), "gguf-unsupported", "version 2 or 3, got 1"},
      {"version 4", patched(4, raw<std::uint32_t>(4)), "gguf-unsupported", "version 2 or 3, got 4"},
      {"big-endian", patched(4, raw<std::uint32_t>(3u << 24)), "gguf-unsupported", "big-endian"},
      {"tensor count", patched(8, raw(huge)), "gguf-invalid", "18446744073709551615 tensors"},
      {"entry count", patched(16, raw(huge)), "gguf-invalid", "18446744073709551615 metadata entries"},
      {"key length", patched(24, raw(huge)), "gguf-invalid", "bytes of text"},
      {"empty key", GgufBuilder().u32("", 1).bytes(), "gguf-invalid", "key"},
      {"key with control bytes", GgufBuilder().u32("a\x1b[2J", 1).bytes(), "gguf-invalid", "printable"},
      {"key twice", GgufBuilder().u32("k", 1).u32("k", 2).bytes(), "gguf-invalid", "twice"},
      {"value type", with_entry(13, raw(0.0)), "gguf-invalid", "value type 13"},
      {"bool", with_entry(7, "\2"), "gguf-invalid", "bool"},
      {"text length", with_entry(8, raw(huge)), "gguf-invalid", "bytes of text"},
      {"array count", with_entry(9, array_of(12, huge, "")), "gguf-invalid", "array elements"},
      {"array count times size overflows", with_entry(9, array_of(12, huge / 8 + 2, std::string(64, '\0'))), "gguf-invalid",
       "array elements"},
      {"array of texts", with_entry(9, array_of(8, 3, raw_text("a") + raw_text("b") + raw(huge))), "gguf-invalid", "bytes of text"},
      {"array of arrays", with_entry(9, array_of(9, 1, array_of(0, 1, "\1"))), "gguf-unsupported", "array of arrays"},
      {"alignment 0", GgufBuilder().u32("general.alignment", 0).bytes(), "gguf-invalid", "power of two"},
      {"alignment 24", GgufBuilder().u32("general.alignment", 24).bytes(), "gguf-invalid", "power of two"},
      {"alignment of another type", GgufBuilder().entry("general.alignment", 10, raw<std::uint64_t>(32)).bytes(), "gguf-invalid", "u32"},
      {"alignment beyond the file", GgufBuilder().u32("general.alignment", 1u << 31).tensor("t", {1}, 0, "1234").bytes(), "gguf-invalid",
       "padding"},
      {"no dimension", with_tensor({}, 0, 4), "gguf-invalid", "dimensions"},
      {"five dimensions", with_tensor({1, 1, 1, 1, 1}, 0, 4), "gguf-invalid", "dimensions"},
      {"a dimension of 0", with_tensor({4, 0}, 0, 4), "gguf-invalid", "dimension of 0"},
      {"a dimension of 2^64 - 1", with_tensor({huge}, 0, 4), "gguf-invalid", "dimension"},
      {"a product that wraps to 0", with_tensor({1ull << 32, 1ull << 32}, 0, 4), "gguf-invalid", "overflows"},
      {"bytes that wrap", with_tensor({1ull << 62}, 0, 4), "gguf-invalid", "overflows"},
      {"a broken block", with_tensor({48}, 3, 40), "gguf-invalid", "whole Q4_1 blocks"},
      {"an unknown tensor type", with_tensor({32}, 99, 40), "gguf-unsupported", "type 99"},
      {"a removed tensor type", with_tensor({32}, 4, 40), "gguf-unsupported", "type 4"},
      {"data too short", with_tensor({64}, 3, 39), "gguf-invalid", "40 bytes"},
      {"data beyond the end", far, "gguf-invalid", "16 bytes at 32"},
      {"data far beyond the end", farther, "gguf-invalid", "18446744073709551584"},
      {"data not aligned", crooked, "gguf-invalid", "multiple of 32"},
      {"data that overlap", overlapping, "gguf-invalid", "overlap"},
      {"tensor twice", GgufBuilder().tensor("t", {1}, 0, "1234").tensor("t", {1}, 0, "1234").bytes(), "gguf-invalid", "twice"},
  };
  for (const auto& damage : damages) {
    const auto file = open_bytes(dir, damage.bytes);
    ASSERT_FALSE(file) << damage.what;
    EXPECT_EQ(file.error().id, damage.id) << damage.what << ": " << to_string(file.error());
    EXPECT_NE(file.error().message.find(damage.message), std::string::npos) << damage.what << ": " << to_string(file.error());
    EXPECT_NE(file.error().where.find("a.gguf @ "), std::string::npos) << damage.what << ": " << file.error().where;
  }
  EXPECT_EQ(Gguf::open(dir / "absent").error().id, "file-missing");
}

TEST(Gguf, KnowsTypesThatItCannotRead) {
  const TestDir dir;
  const auto file = open_bytes(dir, GgufBuilder().tensor("t", {256}, 15, std::string(292, '\0')).bytes());
  ASSERT_TRUE(file) << to_string(file.error());
  EXPECT_EQ(file->find("t")->type_name, "Q8_K");
  const auto weight = file->weight("t");
  ASSERT_FALSE(weight);
  EXPECT_EQ(weight.error().id, "gguf-unsupported");
  EXPECT_NE(weight.error().message.find("tensor t"), std::string::npos);
  EXPECT_EQ(file->weight("u").error().id, "gguf-invalid");
}

}  // namespace
}  // namespace culprit
