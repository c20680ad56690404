#pragma once
// Arithmetic of strided layouts: how far one reaches, how to read it in order, and whether a reshape needs a copy.
#include <optional>

#include "tensor/tensor.h"

namespace culprit {

/// The elements of the storage that a layout touches: [lowest, beyond), both at the offset when it has no element.
struct Reach {
  std::int64_t lowest;
  std::int64_t beyond;
};
/// None when the arithmetic overflows. The layout must have `count` elements and as many strides as dimensions.
[[nodiscard]] std::optional<Reach> reach_of(const Layout& layout, std::int64_t count);

/// Copies all elements to `out` in logical (row-major) order. `origin` is the byte of the element at the layout's offset.
void gather(const Layout& layout, const std::byte* origin, std::byte* out);

/// Strides that show the same elements in the same order as `shape`; none when no strides can. The counts must agree.
[[nodiscard]] std::optional<Shape> reshaped_strides(const Layout& layout, const Shape& shape);

}  // namespace culprit
