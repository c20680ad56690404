#include "format/ggml_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "base/pool.h"
#include "format/ggml_dequantise.h"

namespace culprit {
namespace {
// Numbers, names and sizes as in ggml.h and ggml-common.h.
constexpr GgmlType kTypes[] = {
    {0, "F32", 1, 4},       {1, "F16", 1, 2},       {2, "Q4_0", 32, 18},    {3, "Q4_1", 32, 20},    {6, "Q5_0", 32, 22},
    {7, "Q5_1", 32, 24},    {8, "Q8_0", 32, 34},    {9, "Q8_1", 32, 36},    {10, "Q2_K", 256, 84},  {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144}, {13, "Q5_K", 256, 176}, {14, "Q6_K", 256, 210}, {15, "Q8_K", 256, 292}, {24, "I8", 1, 1},
    {25, "I16", 1, 2},      {26, "I32", 1, 4},      {27, "I64", 1, 8},      {28, "F64", 1, 8},      {30, "BF16", 1, 2},
};
constexpr std::int64_t kGroup = 32;  // elements of every block repacked here
constexpr std::size_t kBlocksPerTask = 1 << 12;

std::uint16_t half_at(const std::byte* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return bits;
}

/// ggml keeps elements 0..15 of a block in the low nibbles of 16 bytes and 16..31 in the high ones; here neighbours share a byte.
void interleave_nibbles(const std::byte* nibbles, std::byte* out) {
  for (int i = 0; i < 8; ++i) {
    const auto first = nibbles[2 * i];
    const auto second = nibbles[2 * i + 1];
    out[i] = (first & std::byte{15}) | (second << 4);
    out[8 + i] = (first >> 4) | (second & std::byte{0xf0});
  }
}

/// How one block type becomes a group: value = scale * q + bias.
struct GroupFormat {
  std::uint32_t number;
  int bits;
  std::ptrdiff_t quants_at;  // byte of the block
  std::ptrdiff_t bias_at;    // byte of the block, or -1: the bias is `bias_scale` times the scale
  int bias_scale;
};
constexpr GroupFormat kGroupFormats[] = {
    {2, 4, 2, -1, -8},    // Q4_0: d * (q - 8)
    {3, 4, 4, 2, 0},      // Q4_1: d * q + m
    {8, 8, 2, -1, -128},  // Q8_0: d * q, q signed; as d * (q + 128) - 128 d
};

void repack_quants(const GroupFormat& format, const std::byte* quants, std::byte* out) {
  if (format.bits == 4) return interleave_nibbles(quants, out);
  for (std::int64_t i = 0; i < kGroup; ++i) out[i] = quants[i] ^ std::byte{0x80};  // two's complement + 128
}

/// -8 d and -128 d are exact in f16 (a power of two moves only the exponent, upwards) unless they overflow; then scales and biases are f32.
bool biases_fit_f16(const GroupFormat& format, const GgmlType& type, std::span<const std::byte> blocks) {
  if (format.bias_at >= 0) return true;
  const double largest = rounding_of(DType::f16).largest;
  for (std::size_t at = 0; at < blocks.size(); at += static_cast<std::size_t>(type.block_bytes)) {
    const double scale = f16_to_f32(half_at(blocks.data() + at));
    if (std::isfinite(scale) && std::abs(scale * format.bias_scale) > largest) return false;
  }
  return true;
}

Weight repack(const GroupFormat& format, const GgmlType& type, const Shape& shape, std::span<const std::byte> blocks,
              const GgufReadFault& fault) {
  auto packed_shape = shape;
  packed_shape.back() = shape.back() * format.bits / 32;
  auto group_shape = shape;
  group_shape.back() = shape.back() / kGroup;
  const auto group_dtype = biases_fit_f16(format, type, blocks) ? DType::f16 : DType::f32;

  Weight weight;
  weight.packed = Tensor::zeros(DType::u32, packed_shape);
  weight.scales = Tensor::zeros(group_dtype, group_shape);
  weight.biases = Tensor::zeros(group_dtype, group_shape);
  weight.bits = format.bits;
  weight.group = kGroup;
  weight.source_type = type.name;

  const auto quants_at = type.name == "Q4_1" ? fault.q4_1_nibble_offset : format.quants_at;
  assert(0 <= quants_at && quants_at + kGroup * format.bits / 8 <= type.block_bytes);
  const auto block_bytes = static_cast<std::size_t>(type.block_bytes);
  const auto group_bytes = static_cast<std::size_t>(kGroup * format.bits / 8);
  const auto element_bytes = size_of(group_dtype);
  auto* packed = weight.packed.mutable_bytes().data();
  auto* scales = weight.scales.mutable_bytes().data();
  auto* biases = weight.biases.mutable_bytes().data();
  parallel_for(blocks.size() / block_bytes, kBlocksPerTask, [&](std::size_t begin, std::size_t end) {
    for (auto i = begin; i < end; ++i) {
      const auto* block = blocks.data() + i * block_bytes;
      const double scale = f16_to_f32(half_at(block));
      const double bias = format.bias_at >= 0 ? f16_to_f32(half_at(block + format.bias_at)) : scale * format.bias_scale;
      store(group_dtype, scales + i * element_bytes, scale);
      store(group_dtype, biases + i * element_bytes, bias);
      repack_quants(format, block + quants_at, packed + i * group_bytes);
    }
  });
  return weight;
}

Weight dequantise(DequantiseBlock block_function, const GgmlType& type, const Shape& shape, std::span<const std::byte> blocks) {
  Weight weight;
  weight.dense = Tensor::zeros(DType::f32, shape);
  weight.source_type = type.name;
  const auto block_bytes = static_cast<std::size_t>(type.block_bytes);
  const auto block_elements = static_cast<std::size_t>(type.block_elements);
  auto* out = reinterpret_cast<float*>(weight.dense.mutable_bytes().data());
  parallel_for(blocks.size() / block_bytes, kBlocksPerTask * kGroup / block_elements, [&](std::size_t begin, std::size_t end) {
    for (auto i = begin; i < end; ++i) block_function(blocks.data() + i * block_bytes, out + i * block_elements);
  });
  return weight;
}

Result<Weight> wrap_dense(DType dtype, const GgmlType& type, const Shape& shape, std::shared_ptr<const void> owner,
                          std::span<const std::byte> blocks) {
  Weight weight;
  weight.source_type = type.name;
  Layout layout{.dtype = dtype, .shape = shape, .strides = row_major_strides(shape), .offset = 0, .storage_id = new_storage_id()};
  CULPRIT_TRY(weight.dense, Tensor::wrap(std::move(owner), blocks, std::move(layout)));
  return weight;
}
}  // namespace

const GgmlType* find_ggml_type(std::uint32_t number) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const GgmlType& type) { return type.number == number; });
  return found == std::end(kTypes) ? nullptr : found;
}

Result<Weight> weight_from_blocks(const GgmlType& type, const Shape& shape, std::shared_ptr<const void> owner,
                                  std::span<const std::byte> blocks, const GgufReadFault& fault) {
  for (const auto& format : kGroupFormats)
    if (format.number == type.number) return repack(format, type, shape, blocks, fault);
  if (const auto block_function = find_dequantise(type.number)) return dequantise(block_function, type, shape, blocks);
  if (type.name == "F32") return wrap_dense(DType::f32, type, shape, std::move(owner), blocks);
  if (type.name == "F16") return wrap_dense(DType::f16, type, shape, std::move(owner), blocks);
  if (type.name == "BF16") return wrap_dense(DType::bf16, type, shape, std::move(owner), blocks);
  return fail("gguf-unsupported", fmt::format("there is no reader for the type {}", type.name));
}

}  // namespace culprit
