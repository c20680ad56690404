#include "format/ggml_dequantise.h"

#include <algorithm>
#include <cstring>

#include "num/dtype.h"

namespace culprit {
namespace {
// Layouts as in ggml-common.h. Each type below has the number of elements of its blocks and groups, and says for a block where it finds
// the scale and min of a group and the quant of an element.

std::uint8_t byte_at(const std::byte* p) { return std::to_integer<std::uint8_t>(*p); }

float half_at(const std::byte* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return f16_to_f32(bits);
}

struct ScaleAndMin {
  float scale;
  float min = 0;
};

/// The low 4 bits of element i of 32: in the low nibbles of 16 bytes, then in the high ones.
int nibble_of_32(const std::byte* nibbles, int i) { return byte_at(nibbles + i % 16) >> i / 16 * 4 & 15; }

struct Q5_0 {  // d, high bits [4], nibbles [16]
  static constexpr int kElements = 32, kGroup = 32;
  static ScaleAndMin group(const std::byte* block, int) { return {half_at(block)}; }
  static int quant(const std::byte* block, int i) {
    return (nibble_of_32(block + 6, i) | (byte_at(block + 2 + i / 8) >> i % 8 & 1) << 4) - 16;
  }
};

struct Q5_1 {  // d, m, high bits [4], nibbles [16]
  static constexpr int kElements = 32, kGroup = 32;
  static ScaleAndMin group(const std::byte* block, int) { return {half_at(block), -half_at(block + 2)}; }
  static int quant(const std::byte* block, int i) { return nibble_of_32(block + 8, i) | (byte_at(block + 4 + i / 8) >> i % 8 & 1) << 4; }
};

/// 2 bits of element i of 256: each half of the block has 32 bytes, each of them the elements l, l + 32, l + 64 and l + 96 of the half.
int pair_of_256(const std::byte* pairs, int i) { return byte_at(pairs + i / 128 * 32 + i % 32) >> i / 32 % 4 * 2 & 3; }

struct Q2_K {  // scales and mins [16], pairs [64], d, dmin
  static constexpr int kElements = 256, kGroup = 16;
  static ScaleAndMin group(const std::byte* block, int g) {
    const int packed = byte_at(block + g);
    return {half_at(block + 80) * static_cast<float>(packed & 15), half_at(block + 82) * static_cast<float>(packed >> 4)};
  }
  static int quant(const std::byte* block, int i) { return pair_of_256(block + 16, i); }
};

struct Q3_K {  // high bits [32], pairs [64], scales [12], d
  static constexpr int kElements = 256, kGroup = 16;
  static ScaleAndMin group(const std::byte* block, int g) {
    const auto* scales = block + 96;  // 4 low bits of 16 scales as nibble_of_32 would have 8 bytes, then 2 high bits of each in 4 bytes
    const int low = byte_at(scales + g % 8) >> g / 8 * 4 & 15;
    const int high = byte_at(scales + 8 + g % 4) >> g / 4 * 2 & 3;
    return {half_at(block + 108) * static_cast<float>((low | high << 4) - 32)};
  }
  static int quant(const std::byte* block, int i) {
    const int high = byte_at(block + i % 32) >> i / 32 & 1;
    return pair_of_256(block + 32, i) - (high ? 0 : 4);
  }
};

/// Q4_K and Q5_K: d, dmin, then 8 scales and 8 mins of 6 bits in 12 bytes.
ScaleAndMin six_bit_group(const std::byte* block, int g) {
  const auto* packed = block + 4;
  int scale, min;
  if (g < 4) {
    scale = byte_at(packed + g) & 63;
    min = byte_at(packed + g + 4) & 63;
  } else {
    scale = (byte_at(packed + g + 4) & 15) | byte_at(packed + g - 4) >> 6 << 4;
    min = byte_at(packed + g + 4) >> 4 | byte_at(packed + g) >> 6 << 4;
  }
  return {half_at(block) * static_cast<float>(scale), half_at(block + 2) * static_cast<float>(min)};
}

/// 4 bits of element i of 256: each quarter of the block has 32 bytes, the low nibbles before the high ones.
int nibble_of_256(const std::byte* nibbles, int i) { return byte_at(nibbles + i / 64 * 32 + i % 32) >> i / 32 % 2 * 4 & 15; }

struct Q4_K {  // d, dmin, scales [12], nibbles [128]
  static constexpr int kElements = 256, kGroup = 32;
  static ScaleAndMin group(const std::byte* block, int g) { return six_bit_group(block, g); }
  static int quant(const std::byte* block, int i) { return nibble_of_256(block + 16, i); }
};

struct Q5_K {  // d, dmin, scales [12], high bits [32], nibbles [128]
  static constexpr int kElements = 256, kGroup = 32;
  static ScaleAndMin group(const std::byte* block, int g) { return six_bit_group(block, g); }
  static int quant(const std::byte* block, int i) {
    return nibble_of_256(block + 48, i) | (byte_at(block + 16 + i % 32) >> i / 32 & 1) << 4;
  }
};

struct Q6_K {  // nibbles [128], pairs [64], scales [16], d
  static constexpr int kElements = 256, kGroup = 16;
  static ScaleAndMin group(const std::byte* block, int g) {
    return {half_at(block + 208) * static_cast<float>(static_cast<std::int8_t>(byte_at(block + 192 + g)))};
  }
  static int quant(const std::byte* block, int i) {
    // each half of the block has 64 bytes: the low nibbles are its elements 0..63, the high ones 64..127
    const int low = byte_at(block + i / 128 * 64 + i % 64) >> i / 64 % 2 * 4 & 15;
    return (low | pair_of_256(block + 128, i) << 4) - 32;
  }
};

template <class Type>
void dequantise(const std::byte* block, float* out) {
  for (int g = 0; g < Type::kElements / Type::kGroup; ++g) {
    const auto [scale, min] = Type::group(block, g);
    for (int i = g * Type::kGroup; i < (g + 1) * Type::kGroup; ++i) out[i] = scale * static_cast<float>(Type::quant(block, i)) - min;
  }
}

struct Entry {
  std::uint32_t number;
  DequantiseBlock function;
};
constexpr Entry kEntries[] = {
    {6, dequantise<Q5_0>},  {7, dequantise<Q5_1>},  {10, dequantise<Q2_K>}, {11, dequantise<Q3_K>},
    {12, dequantise<Q4_K>}, {13, dequantise<Q5_K>}, {14, dequantise<Q6_K>},
};
}  // namespace

DequantiseBlock find_dequantise(std::uint32_t type_number) {
  const auto* found =
      std::find_if(std::begin(kEntries), std::end(kEntries), [&](const Entry& entry) { return entry.number == type_number; });
  return found == std::end(kEntries) ? nullptr : found->function;
}

}  // namespace culprit
