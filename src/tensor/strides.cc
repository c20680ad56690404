#include "tensor/strides.h"

#include <cstring>

namespace culprit {
namespace {
struct Dimension {
  std::int64_t length;
  std::int64_t stride;
};

/// The fewest dimensions that visit the same elements in the same order: those of length 1 dropped, adjacent ones merged where one
/// continues the other.
std::vector<Dimension> merged_dimensions(const Layout& layout) {
  std::vector<Dimension> merged;
  for (std::size_t axis = 0; axis < layout.shape.size(); ++axis) {
    const Dimension next{layout.shape[axis], layout.strides[axis]};
    if (next.length == 1) continue;
    if (!merged.empty() && merged.back().stride == next.stride * next.length)
      merged.back() = {merged.back().length * next.length, next.stride};
    else
      merged.push_back(next);
  }
  return merged;
}

template <std::size_t kBytes>
void copy_line(const std::byte* source, Dimension line, std::byte* out) {
  const std::ptrdiff_t step = line.stride * static_cast<std::ptrdiff_t>(kBytes);
  for (std::int64_t i = 0; i < line.length; ++i, source += step, out += kBytes) std::memcpy(out, source, kBytes);
}

void copy_line(std::size_t size, const std::byte* source, Dimension line, std::byte* out) {
  if (line.stride == 1) {
    std::memcpy(out, source, static_cast<std::size_t>(line.length) * size);
    return;
  }
  switch (size) {
    case 1:
      return copy_line<1>(source, line, out);
    case 2:
      return copy_line<2>(source, line, out);
    case 4:
      return copy_line<4>(source, line, out);
    default:
      return copy_line<8>(source, line, out);
  }
}
}  // namespace

std::optional<Reach> reach_of(const Layout& layout, std::int64_t count) {
  Reach reach{layout.offset, layout.offset};
  if (count == 0) return reach;
  for (std::size_t axis = 0; axis < layout.shape.size(); ++axis) {
    std::int64_t span = 0;
    if (__builtin_mul_overflow(layout.shape[axis] - 1, layout.strides[axis], &span)) return std::nullopt;
    auto& end = span < 0 ? reach.lowest : reach.beyond;
    if (__builtin_add_overflow(end, span, &end)) return std::nullopt;
  }
  if (__builtin_add_overflow(reach.beyond, 1, &reach.beyond)) return std::nullopt;
  return reach;
}

void gather(const Layout& layout, const std::byte* origin, std::byte* out) {
  const auto size = size_of(layout.dtype);
  auto dimensions = merged_dimensions(layout);
  if (dimensions.empty()) dimensions.push_back({1, 1});
  const Dimension line = dimensions.back();
  dimensions.pop_back();
  Shape outer;
  for (const auto& dimension : dimensions) outer.push_back(dimension.length);
  for_each_index(outer, [&](std::span<const std::int64_t> index) {
    std::int64_t element = 0;
    for (std::size_t axis = 0; axis < index.size(); ++axis) element += index[axis] * dimensions[axis].stride;
    copy_line(size, origin + element * static_cast<std::int64_t>(size), line, out);
    out += static_cast<std::size_t>(line.length) * size;
  });
}

std::optional<Shape> reshaped_strides(const Layout& layout, const Shape& shape) {
  if (element_count(shape) == 0) return row_major_strides(shape);
  const auto old = merged_dimensions(layout);
  Shape strides(shape.size(), 1);
  // Each merged dimension is cut, from its end, into as many of the new dimensions as fit it exactly.
  auto axis = shape.size();
  for (auto from = old.rbegin(); from != old.rend(); ++from) {
    std::int64_t covered = 1;
    while (covered < from->length && axis > 0) {
      --axis;
      strides[axis] = from->stride * covered;
      covered *= shape[axis];
    }
    if (covered != from->length) return std::nullopt;
  }
  return strides;  // new dimensions that are left have length 1: any stride will do
}

}  // namespace culprit
