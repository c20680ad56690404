#include "format/weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/hash.h"
#include "base/test_dir.h"
#include "format/gguf.h"
#include "format/gguf_builder.h"

namespace culprit {
namespace {

constexpr std::uint32_t kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 8;

Gguf open_tensor(const TestDir& dir, const std::vector<std::uint64_t>& shape, std::uint32_t type, const std::string& data) {
  EXPECT_TRUE(write_file_whole(dir / "a.gguf", GgufBuilder().tensor("t", shape, type, data).bytes()));
  return Gguf::open(dir / "a.gguf").value();
}

std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.count()));
  std::memcpy(values.data(), tensor.contiguous_bytes().data(), values.size() * sizeof(float));
  return values;
}

std::uint16_t u16_at(const std::string& bytes, std::size_t at) {
  std::uint16_t value = 0;
  std::memcpy(&value, bytes.data() + at, 2);
  return value;
}

/// The formats' definitions, element by element, in exact arithmetic (all terms are small multiples of powers of two) and one rounding.
float naive(const std::string& data, std::uint32_t type, std::size_t element, std::size_t q4_1_nibbles_at = 4) {
  const auto at = element / 32 * (type == kQ4_0 ? 18 : type == kQ4_1 ? 20 : 34);
  const auto i = element % 32;
  const double d = f16_to_f32(u16_at(data, at));
  if (type == kQ8_0) return static_cast<float>(d * static_cast<std::int8_t>(data[at + 2 + i]));
  const auto byte = static_cast<std::uint8_t>(data[at + (type == kQ4_0 ? 2 : q4_1_nibbles_at) + i % 16]);
  const int q = i < 16 ? byte & 15 : byte >> 4;
  if (type == kQ4_0) return static_cast<float>(d * (q - 8));
  return static_cast<float>(d * q + static_cast<double>(f16_to_f32(u16_at(data, at + 2))));
}

/// Blocks with every kind of scale: normal, subnormal, zero, negative.
std::string random_blocks(std::uint32_t type, std::size_t blocks, unsigned seed) {
  std::mt19937 random(seed);
  const std::uint16_t scales[] = {0x0001, 0x83ff, 0x0000, 0x8000, 0x3c00, 0xb555, 0x1234, 0x5800};
  std::string data;
  for (std::size_t i = 0; i < blocks; ++i) {
    data += raw(scales[random() % 8]);
    if (type == kQ4_1) data += raw(scales[random() % 8]);
    for (int j = 0; j < (type == kQ8_0 ? 32 : 16); ++j) data += static_cast<char>(random() % 256);
  }
  return data;
}

class Blocks : public testing::TestWithParam<std::uint32_t> {};

TEST_P(Blocks, AreTheFormatsDefinition) {
  const TestDir dir;
  const std::size_t rows = 37, columns = 96;  // neither a power of two
  const auto data = random_blocks(GetParam(), rows * columns / 32, 7);
  const auto weight = open_tensor(dir, {columns, rows}, GetParam(), data).weight("t").value();
  EXPECT_TRUE(weight.quantized());
  EXPECT_EQ(weight.group, 32);
  EXPECT_EQ(weight.bits, GetParam() == kQ8_0 ? 8 : 4);
  EXPECT_EQ(weight.shape(), (Shape{37, 96}));
  EXPECT_EQ(weight.packed.shape(), (Shape{37, 96 * weight.bits / 32}));
  EXPECT_EQ(weight.scales.shape(), (Shape{37, 3}));
  EXPECT_EQ(weight.scales.dtype(), DType::f16);
  EXPECT_EQ(weight.biases.dtype(), DType::f16);
  const auto actual = floats_of(weight.to_f32());
  for (std::size_t i = 0; i < actual.size(); ++i) ASSERT_EQ(naive(data, GetParam(), i), actual[i]) << i;
  std::vector<float> part(5 * columns);
  weight.rows_f32(11, 16, part.data());
  EXPECT_EQ(std::vector<float>(actual.begin() + 11 * columns, actual.begin() + 16 * columns), part);
  EXPECT_EQ(weight.hash_f32(), xxh3_128(std::as_bytes(std::span(actual))));
}

// Element i of a row is in bits `bits * i` of the row's little-endian bit stream.
TEST_P(Blocks, ArePackedInElementOrder) {
  const TestDir dir;
  const auto data = random_blocks(GetParam(), 4, 8);
  const auto weight = open_tensor(dir, {64, 2}, GetParam(), data).weight("t").value();
  const auto per_word = 32 / weight.bits;
  for (std::int64_t row = 0; row < 2; ++row) {
    for (std::int64_t i = 0; i < 64; ++i) {
      const auto word = static_cast<std::uint32_t>(weight.packed.at({row, i / per_word}));
      const auto q = (word >> (i % per_word * weight.bits)) & ((1u << weight.bits) - 1);
      const double value = weight.scales.at({row, i / 32}) * q + weight.biases.at({row, i / 32});
      EXPECT_EQ(naive(data, GetParam(), static_cast<std::size_t>(row * 64 + i)), static_cast<float>(value));
    }
  }
}

// -8 d and -128 d leave f16 for the largest scales: the values must not.
TEST_P(Blocks, KeepScalesWhoseBiasOverflowsF16) {
  const TestDir dir;
  auto data = random_blocks(GetParam(), 2, 9);
  data.replace(0, 2, raw<std::uint16_t>(0x7bff));  // 65504
  const auto weight = open_tensor(dir, {32, 2}, GetParam(), data).weight("t").value();
  EXPECT_EQ(weight.scales.dtype(), GetParam() == kQ4_1 ? DType::f16 : DType::f32);
  const auto actual = floats_of(weight.to_f32());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(std::isfinite(actual[i]));
    EXPECT_EQ(naive(data, GetParam(), i), actual[i]);
  }
}
INSTANTIATE_TEST_SUITE_P(All, Blocks, testing::Values(kQ4_0, kQ4_1, kQ8_0));

TEST(Q4_1, FaultReadsNibblesFromAnotherByte) {
  const TestDir dir;
  const auto data = random_blocks(kQ4_1, 6, 10);
  const auto file = open_tensor(dir, {96, 2}, kQ4_1, data);
  const auto faulty = floats_of(file.weight("t", {.q4_1_nibble_offset = 2})->to_f32());
  std::size_t different = 0;
  for (std::size_t i = 0; i < faulty.size(); ++i) {
    EXPECT_EQ(naive(data, kQ4_1, i, 2), faulty[i]);
    different += naive(data, kQ4_1, i) != faulty[i];
  }
  EXPECT_GT(different, 0u);
  EXPECT_NE(file.weight("t")->hash_f32(), file.weight("t", {.q4_1_nibble_offset = 2})->hash_f32());
  // Other types have no such fault.
  const auto other = open_tensor(dir, {32}, kQ8_0, random_blocks(kQ8_0, 1, 11));
  EXPECT_EQ(other.weight("t")->hash_f32(), other.weight("t", {.q4_1_nibble_offset = 2})->hash_f32());
}

TEST(DenseWeight, IsAViewOfTheFileWithTheSameValues) {
  const TestDir dir;
  std::vector<double> values;
  for (int i = 0; i < 15; ++i) values.push_back(i - 7.5);
  for (const auto& [dtype, type] : {std::pair(DType::f32, 0u), std::pair(DType::f16, 1u), std::pair(DType::bf16, 30u)}) {
    const auto stored = Tensor::from_values(dtype, {3, 5}, values);
    const auto bytes = stored.contiguous_bytes();
    const auto weight =
        open_tensor(dir, {5, 3}, type, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())).weight("t").value();
    EXPECT_FALSE(weight.quantized());
    EXPECT_EQ(weight.shape(), (Shape{3, 5}));
    EXPECT_EQ(weight.dense.dtype(), dtype);
    EXPECT_EQ(weight.to_f32().values(), values);
    const auto all = floats_of(weight.to_f32());
    EXPECT_EQ(weight.hash_f32(), xxh3_128(std::as_bytes(std::span(all))));
    std::vector<float> row(5);
    weight.rows_f32(1, 2, row.data());
    EXPECT_EQ(row, std::vector<float>(all.begin() + 5, all.begin() + 10));
  }
}

// What engines pack themselves: other widths, groups and scale dtypes.
TEST(PackedWeight, ReadsEveryWidth) {
  std::mt19937 random(12);
  for (const int bits : {1, 2, 3, 4, 5, 6, 8}) {
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      const std::int64_t rows = 3, columns = 128, group = 64;
      Weight weight;
      weight.bits = bits;
      weight.group = static_cast<int>(group);
      weight.packed = Tensor::zeros(DType::u32, {rows, columns * bits / 32});
      auto packed = weight.packed.mutable_bytes();
      std::vector<unsigned> quants;
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        quants.push_back(static_cast<unsigned>(random()) & ((1u << bits) - 1));
        for (int b = 0; b < bits; ++b)  // a row is a whole number of words, so the rows' streams follow each other
          if (quants.back() >> b & 1) packed[static_cast<std::size_t>((i * bits + b) / 8)] |= std::byte{1} << ((i * bits + b) % 8);
      }
      std::vector<double> numbers;
      for (std::int64_t i = 0; i < rows * columns / group; ++i) numbers.push_back(static_cast<double>(random() % 201) / 64 - 1.5);
      weight.scales = Tensor::from_values(dtype, {rows, columns / group}, numbers);
      weight.biases = Tensor::from_values(dtype, {rows, columns / group}, std::vector<double>(numbers.rbegin(), numbers.rend()));
      const auto actual = floats_of(weight.to_f32());
      const auto scales = weight.scales.values();
      const auto biases = weight.biases.values();
      for (std::size_t i = 0; i < actual.size(); ++i) {
        const auto g = i / static_cast<std::size_t>(group);
        ASSERT_EQ(static_cast<float>(scales[g] * quants[i] + biases[g]), actual[i]) << bits << " bits, element " << i;
      }
    }
  }
}

// More rows than one block of the hash and of the pool, and a last block that is shorter.
TEST(PackedWeight, HashOfManyBlocksIsThatOfTheWhole) {
  const TestDir dir;
  const std::size_t rows = 2501, columns = 992;
  const auto weight = open_tensor(dir, {columns, rows}, kQ4_0, random_blocks(kQ4_0, rows * columns / 32, 13)).weight("t").value();
  EXPECT_EQ(weight.hash_f32(), xxh3_128(weight.to_f32().contiguous_bytes()));
}

}  // namespace
}  // namespace culprit
