#include "format/safetensors.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <random>

#include "base/test_dir.h"

namespace culprit {
namespace {

constexpr DType kAll[] = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u32, DType::u8, DType::boolean};

/// A file of that header and so many zero bytes of data.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  const auto length = static_cast<std::uint64_t>(header.size());
  std::string text(reinterpret_cast<const char*>(&length), 8);
  return text + header + std::string(data_bytes, '\0');
}

Tensor random_tensor(DType dtype, const Shape& shape, unsigned seed) {
  auto tensor = Tensor::zeros(dtype, shape);
  std::mt19937 random(seed);
  for (auto& byte : tensor.mutable_bytes()) byte = static_cast<std::byte>(dtype == DType::boolean ? random() % 2 : random() % 256);
  return tensor;
}

bool same_bytes(const Tensor& expected, const Tensor& actual) {
  const auto x = expected.contiguous();
  const auto y = actual.contiguous();
  const auto x_bytes = x.contiguous_bytes();
  const auto y_bytes = y.contiguous_bytes();
  return x.dtype() == y.dtype() && x.shape() == y.shape() && std::equal(x_bytes.begin(), x_bytes.end(), y_bytes.begin(), y_bytes.end());
}

TEST(Safetensors, GivesBackEveryDtypeBitByBit) {
  const TestDir dir;
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const DType dtype : kAll) {
    const std::string name(name_of(dtype));
    tensors.emplace_back("z." + name, random_tensor(dtype, {3, 5}, 1));  // 15 bytes of u8: what follows is not aligned
    tensors.emplace_back("scalar." + name, random_tensor(dtype, {}, 2));
    tensors.emplace_back("none." + name, random_tensor(dtype, {2, 0}, 3));
    tensors.emplace_back("strided." + name, random_tensor(dtype, {4, 3, 2}, 4).transposed(0, 2).sliced(1, 1, 3));
  }
  tensors.emplace_back("large", random_tensor(DType::f16, {300, 700}, 5));
  tensors.emplace_back("a \"quoted\" \\ name\n\xc3\xa9", random_tensor(DType::u8, {1}, 6));
  const std::map<std::string, std::string> metadata{{"format", "pt"}, {"note", "line\n\"quoted\""}};
  ASSERT_TRUE(write_safetensors(dir / "a", tensors, metadata));
  EXPECT_FALSE(std::filesystem::exists(dir / "a.tmp"));

  const auto file = Safetensors::open(dir / "a");
  ASSERT_TRUE(file) << to_string(file.error());
  EXPECT_EQ(file->metadata(), metadata);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    names.push_back(name);
    ASSERT_TRUE(file->contains(name));
    EXPECT_TRUE(same_bytes(tensor, file->tensor(name).value())) << name;
  }
  EXPECT_EQ(file->names(), names);
}

TEST(Safetensors, TensorsOutliveTheReader) {
  const TestDir dir;
  const auto expected = random_tensor(DType::f32, {100}, 1);
  ASSERT_TRUE(write_safetensors(dir / "a", {{"x", expected}}));
  auto file = Safetensors::open(dir / "a");
  const auto tensor = file->tensor("x").value();
  file = fail("internal", "dropped");
  EXPECT_TRUE(same_bytes(expected, tensor));
}

TEST(Safetensors, TheDataBeginsAtAMultipleOfEight) {
  const TestDir dir;
  for (std::size_t length = 1; length <= 8; ++length) {
    ASSERT_TRUE(write_safetensors(dir / "a", {{std::string(length, 'n'), random_tensor(DType::u8, {1}, 1)}}));
    EXPECT_EQ(std::filesystem::file_size(dir / "a") % 8, 1u);
  }
}

TEST(Safetensors, NamesAreAskedForByName) {
  const TestDir dir;
  ASSERT_TRUE(write_safetensors(dir / "a", {}));
  const auto file = Safetensors::open(dir / "a");
  ASSERT_TRUE(file) << to_string(file.error());
  EXPECT_TRUE(file->names().empty());
  EXPECT_FALSE(file->contains("x"));
  EXPECT_EQ(file->tensor("x").error().id, "safetensors-invalid");
}

// Written by the reference implementation's rules: padding by spaces, entries out of the order of their data.
TEST(Safetensors, TakesEntriesInAnyOrder) {
  const TestDir dir;
  auto text =
      file_of(R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}   )", 0);
  const float number = 1.5f;
  text.append(reinterpret_cast<const char*>(&number), 4).append("\x07\x09");
  ASSERT_TRUE(write_file_whole(dir / "a", text));
  const auto file = Safetensors::open(dir / "a");
  ASSERT_TRUE(file) << to_string(file.error());
  EXPECT_EQ(file->names(), (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(file->tensor("a")->values(), std::vector<double>{1.5});
  EXPECT_EQ(file->tensor("b")->values(), (std::vector<double>{7, 9}));
}

struct Malformed {
  const char* why;
  std::string text;
  const char* message;  // a part of it
};

TEST(Safetensors, RefusesMalformedFiles) {
  const auto with_length = [](std::uint64_t length, const std::string& rest) {
    return std::string(reinterpret_cast<const char*>(&length), 8) + rest;
  };
  const Malformed cases[] = {
      {"empty", "", "8 bytes of header length, 0 remain"},
      {"truncated length", "abc", "3 remain"},
      {"header beyond the file", with_length(10, "{}"), "header length 10, but 2 bytes remain"},
      {"largest length", with_length(~0ull, "{}"), "exceeds"},
      {"length that wraps when 8 is added", with_length(~0ull - 7, "{}"), "exceeds"},
      {"no header", with_length(0, ""), "not JSON"},
      {"truncated JSON", file_of(R"({"a":)", 0), "not JSON"},
      {"text after the JSON", file_of("{}x", 0), "not JSON"},
      {"bad UTF-8", file_of("{\"\xff\":1}", 0), "not JSON"},
      {"number out of range", file_of(R"({"a":1e999})", 0), "not JSON"},
      {"a list", file_of("[]", 0), "not an object"},
      {"entry is no object", file_of(R"({"a":1})", 0), "expected an object"},
      {"no dtype", file_of(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4), "expected an object with dtype"},
      {"no shape", file_of(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4), "expected an object with dtype"},
      {"no offsets", file_of(R"({"a":{"dtype":"F32","shape":[1]}})", 4), "expected an object with dtype"},
      {"dtype no string", file_of(R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,4]}})", 4), "dtype is not a string"},
      {"unknown dtype", file_of(R"({"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})", 4),
       "tensor a: dtype F8_E4M3 is not supported"},
      {"negative dimension", file_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), "shape is not a list of counts"},
      {"fractional dimension", file_of(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4), "shape is not a list of counts"},
      {"one offset", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4), "data_offsets is not a pair"},
      {"offsets reversed", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4), "reach outside"},
      {"offsets beyond the data", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3),
       "[0, 4] reach outside the data of 3 bytes"},
      {"largest offsets", file_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[18446744073709551615,18446744073709551615]}})", 0),
       "reach outside"},
      {"offset beyond 64 bits", file_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,18446744073709551616]}})", 0),
       "not a pair of counts"},
      {"size is not that of the shape", file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
       "needs 8 bytes, data_offsets give 4"},
      {"count overflows", file_of(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
       "more elements than can be"},
      {"bytes overflow", file_of(R"({"a":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0),
       "more elements than can be"},
      {"dimension beyond 63 bits", file_of(R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,0]}})", 0),
       "more elements than can be"},
      {"gap at the begin", file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2), "begins at 1 of the data, expected 0"},
      {"gap between",
       file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})", 3),
       "begins at 2"},
      {"overlap",
       file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3),
       "begins at 1"},
      {"data left over", file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2), "cover 1 of 2 bytes"},
      {"a name twice",
       file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
       "names a twice"},
      {"metadata no object", file_of(R"({"__metadata__":1})", 0), "not an object"},
      {"metadata no strings", file_of(R"({"__metadata__":{"k":1}})", 0), "k is not a string"},
      {"deep nesting", file_of(std::string(100'000, '['), 0), "not JSON"},
  };
  const TestDir dir;
  for (const auto& c : cases) {
    ASSERT_TRUE(write_file_whole(dir / "a", c.text));
    const auto file = Safetensors::open(dir / "a");
    ASSERT_FALSE(file) << c.why;
    EXPECT_EQ(file.error().id, "safetensors-invalid") << c.why;
    EXPECT_NE(file.error().message.find(c.message), std::string::npos) << c.why << ": " << file.error().message;
    EXPECT_EQ(file.error().where.find((dir / "a").string() + " @ "), 0u) << c.why << ": " << file.error().where;
  }
  EXPECT_EQ(Safetensors::open(dir / "absent").error().id, "file-missing");
}

TEST(Safetensors, RefusesEveryTruncationOfAFile) {
  const TestDir dir;
  ASSERT_TRUE(write_safetensors(dir / "a", {{"x", random_tensor(DType::f32, {3}, 1)}, {"y", random_tensor(DType::u8, {5}, 2)}}));
  const auto whole = read_file(dir / "a").value();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    ASSERT_TRUE(write_file_whole(dir / "b", std::string_view(whole).substr(0, size)));
    EXPECT_FALSE(Safetensors::open(dir / "b")) << size;
  }
}

// Whatever a byte is changed to, the reader answers, and what it accepts can be read. Under the address sanitiser this is a small fuzzer.
TEST(Safetensors, SurvivesAnyChangedByte) {
  const TestDir dir;
  ASSERT_TRUE(write_safetensors(dir / "a", {{"x", random_tensor(DType::bf16, {3}, 1)}, {"y", random_tensor(DType::i64, {2}, 2)}}));
  const auto whole = read_file(dir / "a").value();
  int accepted = 0;
  for (std::size_t i = 0; i < whole.size(); ++i)
    for (const char c : {'\0', '0', '9', '"', '[', '}', ',', '\x7f', '\xff'}) {
      auto text = whole;
      text[i] = c;
      ASSERT_TRUE(write_file_whole(dir / "b", text));
      const auto file = Safetensors::open(dir / "b");
      if (!file) continue;
      ++accepted;
      for (const auto& name : file->names())
        EXPECT_EQ(file->tensor(name)->values().size(), static_cast<std::size_t>(file->tensor(name)->count()));
    }
  EXPECT_GT(accepted, 100) << "changes of the data and of names are legal";
}

TEST(WriteSafetensors, ReportsAFullDiskAndLeavesTheOldFile) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const TestDir dir;
  ASSERT_TRUE(write_file_whole(dir / "a", "old"));
  for (const std::int64_t count : {4, 1'000'000}) {
    std::filesystem::create_symlink("/dev/full", dir / "a.tmp");
    const auto result = write_safetensors(dir / "a", {{"x", Tensor::zeros(DType::f32, {count})}});
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().id, "file-write");
    EXPECT_NE(result.error().message.find(std::strerror(ENOSPC)), std::string::npos) << result.error().message;
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(dir / "a.tmp")));
    EXPECT_EQ(read_file(dir / "a").value(), "old");
  }
}

}  // namespace
}  // namespace culprit
