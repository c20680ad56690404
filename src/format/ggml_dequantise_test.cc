#include "format/ggml_dequantise.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/test_dir.h"
#include "format/gguf.h"
#include "format/gguf_builder.h"
#include "num/dtype.h"

namespace culprit {
namespace {

constexpr std::uint16_t kOne = 0x3c00, kHalf = 0x3800, kMinusTwo = 0xc000;  // f16

/// The numbers that a block holds, before they are packed. `scales` and `mins` are those of the groups, if the type has them.
struct Numbers {
  std::uint16_t d, dmin;
  std::vector<int> scales, mins, quants;
};

/// A type as its definition has it. `pack` puts the numbers into bytes in the order in which a quantiser walks over its elements, which is
/// the opposite direction of the code under test.
struct TypeCase {
  const char* name;
  std::uint32_t number;
  int group, scale_min, scale_max, mins_max, quant_min, quant_max;  // mins_max < 0: no mins
  std::string (*pack)(const Numbers&);
};

using Bytes = std::vector<int>;
std::string text_of(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

std::string pack_q5_0(const Numbers& n) {
  Bytes high(4), low(16);
  for (int i = 0; i < 32; ++i) {
    const int q = n.quants[i] + 16;
    low[i % 16] |= (q & 15) << (i < 16 ? 0 : 4);
    high[i / 8] |= (q >> 4) << i % 8;
  }
  return raw(n.d) + text_of(high) + text_of(low);
}

std::string pack_q5_1(const Numbers& n) {
  auto shifted = n;
  for (int& q : shifted.quants) q -= 16;
  return raw(n.d) + raw(n.dmin) + pack_q5_0(shifted).substr(2);
}

/// Four elements a byte: 128 elements in 32 bytes, 32 elements in each pair of bits.
void pack_pairs(const std::vector<int>& pairs, Bytes& bytes) {
  bytes.assign(64, 0);
  int i = 0;
  for (int half = 0; half < 2; ++half)
    for (int shift = 0; shift < 8; shift += 2)
      for (int l = 0; l < 32; ++l) bytes[32 * half + l] |= pairs[i++] << shift;
}

std::string pack_q2_k(const Numbers& n) {
  Bytes scales, pairs;
  for (int g = 0; g < 16; ++g) scales.push_back(n.scales[g] | n.mins[g] << 4);
  pack_pairs(n.quants, pairs);
  return text_of(scales) + text_of(pairs) + raw(n.d) + raw(n.dmin);
}

std::string pack_q3_k(const Numbers& n) {
  Bytes high(32), pairs, scales(12);
  std::vector<int> low;
  for (int i = 0; i < 256; ++i) {
    const int q = n.quants[i] + 4;
    low.push_back(q & 3);
    if (q & 4) high[i % 32] |= 1 << i / 32;
  }
  pack_pairs(low, pairs);
  for (int g = 0; g < 16; ++g) {
    const int scale = n.scales[g] + 32;
    scales[g % 8] |= (scale & 15) << (g < 8 ? 0 : 4);
    scales[8 + g % 4] |= (scale >> 4) << 2 * (g / 4);
  }
  return text_of(high) + text_of(pairs) + text_of(scales) + raw(n.d);
}

std::string pack_six_bits(const Numbers& n) {
  Bytes bytes(12);
  for (int g = 0; g < 4; ++g) {
    bytes[g] = n.scales[g];
    bytes[g + 4] = n.mins[g];
  }
  for (int g = 4; g < 8; ++g) {
    bytes[g + 4] = (n.scales[g] & 15) | (n.mins[g] & 15) << 4;
    bytes[g - 4] |= n.scales[g] >> 4 << 6;
    bytes[g] |= n.mins[g] >> 4 << 6;
  }
  return text_of(bytes);
}

/// 64 elements in 32 bytes, the first 32 in the low nibbles.
std::string pack_nibbles(const std::vector<int>& quants) {
  Bytes bytes(128);
  for (int i = 0; i < 256; ++i) bytes[i / 64 * 32 + i % 32] |= (quants[i] & 15) << (i % 64 < 32 ? 0 : 4);
  return text_of(bytes);
}

std::string pack_q4_k(const Numbers& n) { return raw(n.d) + raw(n.dmin) + pack_six_bits(n) + pack_nibbles(n.quants); }

std::string pack_q5_k(const Numbers& n) {
  Bytes high(32);
  for (int i = 0; i < 256; ++i) high[i % 32] |= (n.quants[i] >> 4) << i / 32;
  return raw(n.d) + raw(n.dmin) + pack_six_bits(n) + text_of(high) + pack_nibbles(n.quants);
}

std::string pack_q6_k(const Numbers& n) {
  Bytes low(128), high;
  std::vector<int> pairs;
  for (int i = 0; i < 256; ++i) {
    const int q = n.quants[i] + 32;
    pairs.push_back(q >> 4);
    low[i / 128 * 64 + i % 64] |= (q & 15) << (i % 128 < 64 ? 0 : 4);
  }
  pack_pairs(pairs, high);
  return text_of(low) + text_of(high) + text_of(n.scales) + raw(n.d);
}

const TypeCase kCases[] = {
    {"Q5_0", 6, 32, 1, 1, -1, -16, 15, pack_q5_0},       {"Q5_1", 7, 32, 1, 1, -1, 0, 31, pack_q5_1},
    {"Q2_K", 10, 16, 0, 15, 15, 0, 3, pack_q2_k},        {"Q3_K", 11, 16, -32, 31, -1, -4, 3, pack_q3_k},
    {"Q4_K", 12, 32, 0, 63, 63, 0, 15, pack_q4_k},       {"Q5_K", 13, 32, 0, 63, 63, 0, 31, pack_q5_k},
    {"Q6_K", 14, 16, -128, 127, -1, -32, 31, pack_q6_k},
};

int elements_of(const TypeCase& type) { return type.number < 10 ? 32 : 256; }

/// In exact arithmetic (the terms are small multiples of powers of two, 2^-24 at least) and one rounding.
float expected_of(const TypeCase& type, const Numbers& n, int i) {
  const int g = i / type.group;
  const double d = f16_to_f32(n.d), dmin = f16_to_f32(n.dmin);
  if (type.number == 7) return static_cast<float>(d * n.quants[i] + dmin);  // Q5_1
  const double min = type.mins_max < 0 ? 0 : dmin * n.mins[g];
  return static_cast<float>(d * n.scales[g] * n.quants[i] - min);
}

int between(std::mt19937& random, int low, int high) { return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1)); }

Numbers random_numbers(const TypeCase& type, std::mt19937& random) {
  const std::uint16_t halves[] = {0x0001, 0x83ff, 0x0000, 0x8000, kOne, 0xb555, 0x1234, 0x7bff, 0xfbff};  // subnormals, zeros, the largest
  Numbers n{halves[random() % 9], halves[random() % 9], {}, {}, {}};
  for (int g = 0; g < elements_of(type) / type.group; ++g) {
    n.scales.push_back(between(random, type.scale_min, type.scale_max));
    n.mins.push_back(between(random, 0, std::max(type.mins_max, 0)));
  }
  for (int i = 0; i < elements_of(type); ++i) n.quants.push_back(between(random, type.quant_min, type.quant_max));
  return n;
}

std::vector<float> dequantised(const TypeCase& type, const std::string& block) {
  std::vector<float> out(static_cast<std::size_t>(elements_of(type)));
  find_dequantise(type.number)(reinterpret_cast<const std::byte*>(block.data()), out.data());
  return out;
}

TEST(GgmlDequantise, EveryTypeIsItsDefinition) {
  std::mt19937 random(21);
  for (const auto& type : kCases) {
    for (int round = 0; round < 200; ++round) {
      const auto n = random_numbers(type, random);
      const auto actual = dequantised(type, type.pack(n));
      for (int i = 0; i < elements_of(type); ++i) ASSERT_EQ(expected_of(type, n, i), actual[i]) << type.name << ", element " << i;
    }
  }
}

// Elements counted by hand: the first of each place where a type keeps bits.
TEST(GgmlDequantise, HandComputedBlocks) {
  // Q5_0: d 1/2; byte 0 of the nibbles 0x2f (element 0: 15, element 16: 2), bit 16 set: 1/2 (15 - 16) and 1/2 (18 - 16); others -8
  auto values = dequantised(kCases[0], raw(kHalf) + std::string("\0\0\1\0", 4) + std::string("\x2f") + std::string(15, '\0'));
  EXPECT_EQ(values[0], -0.5f);
  EXPECT_EQ(values[16], 1.0f);
  EXPECT_EQ(values[31], -8.0f);
  // Q5_1: d 1/2, m -2; the same quants without the 16: 7.5 - 2, 9 - 2, -2
  values = dequantised(kCases[1], raw(kHalf) + raw(kMinusTwo) + std::string("\0\0\1\0", 4) + std::string("\x2f") + std::string(15, '\0'));
  EXPECT_EQ(values[0], 5.5f);
  EXPECT_EQ(values[16], 7.0f);
  EXPECT_EQ(values[31], -2.0f);
  // Q2_K: scale 3 and min 5 in group 0, scale 15 in group 2; pairs of byte 0: 3 2 1 0 for elements 0, 32, 64, 96; d 1, dmin 1/2
  std::string scales(16, '\0');
  scales[0] = '\x53';
  scales[2] = '\x0f';
  values = dequantised(kCases[2], scales + std::string("\x1b") + std::string(63, '\0') + raw(kOne) + raw(kHalf));
  EXPECT_EQ(values[0], 3 * 3 - 2.5f);
  EXPECT_EQ(values[1], -2.5f);
  EXPECT_EQ(values[32], 30.0f);
  EXPECT_EQ(values[64], 0.0f);
  // Q3_K: all scale bits 0 are a scale of -32; element 0 with the high bit and pair 1 is 1, the others -4
  values = dequantised(kCases[3], std::string("\1") + std::string(31, '\0') + std::string("\1") + std::string(63, '\0') +
                                      std::string(12, '\0') + raw(kHalf));
  EXPECT_EQ(values[0], -16.0f);
  EXPECT_EQ(values[1], 64.0f);
  // Q4_K: scale of group 4: 6 | 2 << 4 = 38, its min: 9 | 1 << 4 = 25; element 128 of quant 7, 129 of 0
  std::string packed(12, '\0');
  packed[0] = '\x80';
  packed[4] = '\x40';
  packed[8] = '\x96';
  std::string nibbles(128, '\0');
  nibbles[64] = '\7';
  values = dequantised(kCases[4], raw(kOne) + raw(kHalf) + packed + nibbles);
  EXPECT_EQ(values[128], 38 * 7 - 12.5f);
  EXPECT_EQ(values[129], -12.5f);
  EXPECT_EQ(values[0], 0.0f);
  // Q5_K: the same, and the fifth bit of element 128 in bit 4 of the first byte of the high ones
  values = dequantised(kCases[5], raw(kOne) + raw(kHalf) + packed + std::string("\x10") + std::string(31, '\0') + nibbles);
  EXPECT_EQ(values[128], 38 * 23 - 12.5f);
  EXPECT_EQ(values[129], -12.5f);
  // Q6_K: scale -128 in group 0, 127 in group 15; byte 0: nibbles 5 (element 0) and 10 (element 64), pairs 3 (element 0) and 1 (64)
  std::string bytes_scales(16, '\0');
  bytes_scales[0] = '\x80';
  bytes_scales[4] = '\2';
  bytes_scales[15] = '\x7f';
  values = dequantised(
      kCases[6], std::string("\xa5") + std::string(127, '\0') + std::string("\x13") + std::string(63, '\0') + bytes_scales + raw(kHalf));
  EXPECT_EQ(values[0], -64.0f * (5 + 48 - 32));
  EXPECT_EQ(values[64], 1.0f * (10 + 16 - 32));
  EXPECT_EQ(values[255], 63.5f * -32);
}

TEST(GgmlDequantise, ScalesThatAreNotFiniteFollowIeee) {
  std::mt19937 random(22);
  for (const auto& type : kCases) {
    auto n = random_numbers(type, random);
    n.d = 0x7c00;  // infinity
    n.dmin = 0;
    const auto infinite = dequantised(type, type.pack(n));
    for (int i = 0; i < elements_of(type); ++i) {
      const int factor = n.scales[i / type.group] * n.quants[i];
      if (factor == 0)
        EXPECT_TRUE(std::isnan(infinite[i])) << type.name << ", element " << i;
      else
        EXPECT_EQ(infinite[i], std::copysign(std::numeric_limits<float>::infinity(), static_cast<float>(factor))) << type.name << ' ' << i;
    }
    n.d = 0x7e00;
    for (const float value : dequantised(type, type.pack(n))) EXPECT_TRUE(std::isnan(value)) << type.name;
  }
}

// Through a file, with rows and more blocks than one task of the pool converts.
TEST(GgmlDequantise, WeightsAreDenseWithTheShapeOfTheTensor) {
  std::mt19937 random(23);
  const TestDir dir;
  for (const auto& type : kCases) {
    const int columns = 3 * elements_of(type), rows = type.number < 10 ? 1400 : 180;
    std::vector<Numbers> blocks;
    std::string data;
    for (int i = 0; i < 3 * rows; ++i) data += type.pack(blocks.emplace_back(random_numbers(type, random)));
    ASSERT_TRUE(write_file_whole(
        dir / "a.gguf",
        GgufBuilder().tensor("t", {static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows)}, type.number, data).bytes()));
    const auto file = Gguf::open(dir / "a.gguf");
    ASSERT_TRUE(file) << to_string(file.error());
    const auto weight = file->weight("t");
    ASSERT_TRUE(weight) << to_string(weight.error());
    EXPECT_FALSE(weight->quantized());
    EXPECT_EQ(weight->source_type, type.name);
    EXPECT_EQ(weight->dense.dtype(), DType::f32);
    EXPECT_EQ(weight->shape(), (Shape{rows, columns}));
    const auto values = weight->dense.values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto per_block = static_cast<std::size_t>(elements_of(type));
      ASSERT_EQ(expected_of(type, blocks[i / per_block], static_cast<int>(i % per_block)), values[i]) << type.name << ", element " << i;
    }
    // One element, one block or one byte short of what the shape says.
    const auto open = [&](std::uint64_t length, std::size_t bytes) {
      EXPECT_TRUE(write_file_whole(dir / "b.gguf", GgufBuilder().tensor("t", {length}, type.number, data.substr(0, bytes)).bytes()));
      return Gguf::open(dir / "b.gguf");
    };
    const auto block_bytes = data.size() / blocks.size();
    EXPECT_TRUE(open(static_cast<std::uint64_t>(columns), 3 * block_bytes));
    for (const auto& [length, bytes] :
         {std::pair(columns - 1, 3 * block_bytes), std::pair(columns, 3 * block_bytes - 1), std::pair(columns, 2 * block_bytes)}) {
      const auto broken = open(static_cast<std::uint64_t>(length), bytes);
      ASSERT_FALSE(broken) << type.name;
      EXPECT_EQ(broken.error().id, "gguf-invalid");
      EXPECT_NE(broken.error().where.find("b.gguf @ "), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace culprit
