#pragma once
// The tensor types of ggml: how many elements and bytes a block has, and how the blocks that culprit reads become weights.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "format/gguf.h"

namespace culprit {

struct GgmlType {
  std::uint32_t number;
  std::string_view name;
  std::int64_t block_elements;  // along the last axis
  std::int64_t block_bytes;
};
/// The type with that number, or nullptr.
[[nodiscard]] const GgmlType* find_ggml_type(std::uint32_t number);

/// Repacks `blocks`, the data of a tensor of row-major `shape`, as Gguf::weight says. `owner` keeps the bytes alive: dense types are views.
/// A Q4_0 or Q8_0 block whose scale is not finite has NaN for values. Error ids: gguf-unsupported for a type that has no reader here.
[[nodiscard]] Result<Weight> weight_from_blocks(const GgmlType& type, const Shape& shape, std::shared_ptr<const void> owner,
                                                std::span<const std::byte> blocks, const GgufReadFault& fault);

}  // namespace culprit
