#pragma once
// Strided tensors over shared storage: shape, strides (any sign, zero too), offset and storage identity are data, as engines have them.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "num/dtype.h"

namespace culprit {

using Shape = std::vector<std::int64_t>;

[[nodiscard]] std::int64_t element_count(const Shape& shape);
/// element_count for shapes from outside: none when a dimension is negative or the product of those that are not 0 overflows.
[[nodiscard]] std::optional<std::int64_t> checked_count(const Shape& shape);
[[nodiscard]] Shape row_major_strides(const Shape& shape);
/// "[1, 9, 1, 64]"
[[nodiscard]] std::string to_string(const Shape& shape);

/// An id that no other storage of this process has.
[[nodiscard]] std::uint64_t new_storage_id();

/// How a tensor lies in its storage. Strides and offset count elements, not bytes.
struct Layout {
  DType dtype = DType::f32;
  Shape shape;
  Shape strides;
  std::int64_t offset = 0;
  std::uint64_t storage_id = 0;  // equal ids alias; 0 when unknown

  /// Row-major without gaps (dimensions of length 1 may have any stride).
  [[nodiscard]] bool is_contiguous() const;
};

/// A view of bytes that it keeps alive. Copying a Tensor copies no data.
class Tensor {
 public:
  Tensor() = default;
  [[nodiscard]] static Tensor zeros(DType dtype, Shape shape);
  /// A contiguous tensor with each value rounded once to `dtype`. values.size() must be element_count(shape).
  [[nodiscard]] static Tensor from_values(DType dtype, Shape shape, std::span<const double> values);
  /// Wraps storage; error id tensor-layout when the layout reaches outside `bytes` or its rank and strides disagree.
  [[nodiscard]] static Result<Tensor> wrap(std::shared_ptr<const void> owner, std::span<const std::byte> bytes, Layout layout);

  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] DType dtype() const { return layout_.dtype; }
  [[nodiscard]] const Shape& shape() const { return layout_.shape; }
  [[nodiscard]] std::int64_t dim(int axis) const { return layout_.shape[axis < 0 ? layout_.shape.size() + axis : axis]; }
  [[nodiscard]] int rank() const { return static_cast<int>(layout_.shape.size()); }
  [[nodiscard]] std::int64_t count() const { return element_count(layout_.shape); }
  [[nodiscard]] bool empty() const { return storage_.empty(); }

  [[nodiscard]] double at(std::span<const std::int64_t> index) const;
  [[nodiscard]] double at(std::initializer_list<std::int64_t> index) const { return at(std::span(index.begin(), index.size())); }
  /// Writable bytes of a contiguous tensor that zeros, from_values or copy made; asserts otherwise.
  [[nodiscard]] std::span<std::byte> mutable_bytes();
  /// Bytes of a contiguous tensor, in order; asserts otherwise.
  [[nodiscard]] std::span<const std::byte> contiguous_bytes() const;
  /// All bytes that the layout's offset and strides are relative to, whatever the layout; the first element is at offset * size_of(dtype).
  [[nodiscard]] std::span<const std::byte> storage() const { return storage_; }
  void set(std::span<const std::int64_t> index, double value);
  void set(std::initializer_list<std::int64_t> index, double value) { set(std::span(index.begin(), index.size()), value); }

  /// All values in logical (row-major) order, strides respected.
  [[nodiscard]] std::vector<double> values() const;
  /// What a probe reads that ignores strides: `count` elements of the storage from the offset on, in storage order. Elements beyond
  /// the storage are NaN. Only for naming probe faults and injecting F02.
  [[nodiscard]] std::vector<double> linear_values(std::int64_t count) const;

  [[nodiscard]] Tensor contiguous() const;  // *this when it is contiguous already, else a copy
  [[nodiscard]] Tensor copy() const;        // always a fresh contiguous copy
  /// *this when it has that dtype already, else a fresh contiguous tensor, rounded once (i64 beyond 2^53 goes through f64).
  [[nodiscard]] Tensor cast(DType dtype) const;
  /// Views; they share the storage and its id.
  [[nodiscard]] Tensor transposed(int axis_a, int axis_b) const;
  [[nodiscard]] Tensor sliced(int axis, std::int64_t begin, std::int64_t end) const;
  /// A view where strides allow it, else a copy. Asserts that the counts agree.
  [[nodiscard]] Tensor reshaped(Shape shape) const;
  [[nodiscard]] Tensor with_storage_id(std::uint64_t id) const;

 private:
  [[nodiscard]] static Tensor allocate(DType dtype, Shape shape, bool zeroed);
  [[nodiscard]] std::int64_t element_of(std::span<const std::int64_t> index) const;
  [[nodiscard]] const std::byte* origin() const;  // the byte of the element at the offset

  std::shared_ptr<const void> owner_;
  std::span<const std::byte> storage_;
  bool writable_ = false;
  Layout layout_;
};

/// Calls visit(index) for every index of `shape` in row-major order.
template <class Visit>
void for_each_index(const Shape& shape, Visit&& visit) {
  for (auto n : shape)
    if (n == 0) return;
  std::vector<std::int64_t> index(shape.size(), 0);
  while (true) {
    visit(std::span<const std::int64_t>(index));
    int axis = static_cast<int>(shape.size()) - 1;
    while (axis >= 0 && ++index[axis] == shape[axis]) index[axis--] = 0;
    if (axis < 0) return;
  }
}

}  // namespace culprit
