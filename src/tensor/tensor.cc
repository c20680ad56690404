#include "tensor/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "tensor/strides.h"

namespace culprit {
namespace {
constexpr std::size_t kCastElements = 4096;  // a block that stays in the first-level cache

template <class Wide>
void cast_through(DType from, const std::byte* source, DType to, std::byte* out, std::size_t count) {
  Wide block[kCastElements];
  for (std::size_t done = 0; done < count; done += kCastElements) {
    const auto n = std::min(kCastElements, count - done);
    load_many(from, source + done * size_of(from), n, block);
    store_many(to, block, n, out + done * size_of(to));
  }
}
}  // namespace

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (const auto n : shape) count *= n;
  return count;
}

std::optional<std::int64_t> checked_count(const Shape& shape) {
  std::int64_t count = 1;
  bool none = false;
  for (const auto n : shape) {
    if (n < 0 || (n > 0 && __builtin_mul_overflow(count, n, &count))) return std::nullopt;
    none = none || n == 0;
  }
  return none ? 0 : count;
}

Shape row_major_strides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (auto axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * std::max<std::int64_t>(shape[axis], 1);
  return strides;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::uint64_t new_storage_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

bool Layout::is_contiguous() const {
  std::int64_t expected = 1;
  bool dense = true;
  for (auto axis = shape.size(); axis-- > 0;) {
    if (shape[axis] == 0) return true;  // no element lies anywhere
    if (shape[axis] == 1) continue;
    dense = dense && strides[axis] == expected;
    expected *= shape[axis];
  }
  return dense;
}

Tensor Tensor::allocate(DType dtype, Shape shape, bool zeroed) {
  const auto count = checked_count(shape);
  assert(count && "a negative dimension, or more elements than memory can hold");
  const auto bytes = static_cast<std::size_t>(*count) * size_of(dtype);
  // calloc gives large blocks as untouched zero pages.
  void* block = zeroed ? std::calloc(std::max<std::size_t>(bytes, 1), 1) : std::malloc(std::max<std::size_t>(bytes, 1));
  if (block == nullptr) throw std::bad_alloc();
  Tensor tensor;
  tensor.owner_ = std::shared_ptr<void>(block, std::free);
  tensor.storage_ = {static_cast<const std::byte*>(block), bytes};
  tensor.writable_ = true;
  auto strides = row_major_strides(shape);
  tensor.layout_ = {.dtype = dtype, .shape = std::move(shape), .strides = std::move(strides), .offset = 0, .storage_id = new_storage_id()};
  return tensor;
}

Tensor Tensor::zeros(DType dtype, Shape shape) { return allocate(dtype, std::move(shape), true); }

Tensor Tensor::from_values(DType dtype, Shape shape, std::span<const double> values) {
  auto tensor = allocate(dtype, std::move(shape), false);
  assert(values.size() == static_cast<std::size_t>(tensor.count()));
  store_many(dtype, values.data(), values.size(), tensor.mutable_bytes().data());
  return tensor;
}

Result<Tensor> Tensor::wrap(std::shared_ptr<const void> owner, std::span<const std::byte> bytes, Layout layout) {
  if (layout.shape.size() != layout.strides.size())
    return fail("tensor-layout", fmt::format("shape has {} dimensions, strides {}", layout.shape.size(), layout.strides.size()));
  const auto count = checked_count(layout.shape);
  if (!count) return fail("tensor-layout", fmt::format("shape {} has a negative dimension or too many elements", to_string(layout.shape)));
  const auto available = static_cast<std::int64_t>(bytes.size() / size_of(layout.dtype));
  const auto reach = reach_of(layout, *count);
  if (!reach || reach->lowest < 0 || reach->beyond > available)
    return fail("tensor-layout", fmt::format("shape {}, strides {}, offset {} reach outside the storage of {} elements",
                                             to_string(layout.shape), to_string(layout.strides), layout.offset, available));
  Tensor tensor;
  tensor.owner_ = std::move(owner);
  tensor.storage_ = bytes;
  tensor.layout_ = std::move(layout);
  return tensor;
}

std::int64_t Tensor::element_of(std::span<const std::int64_t> index) const {
  assert(index.size() == layout_.shape.size());
  std::int64_t element = layout_.offset;
  for (std::size_t axis = 0; axis < index.size(); ++axis) {
    assert(index[axis] >= 0 && index[axis] < layout_.shape[axis]);
    element += index[axis] * layout_.strides[axis];
  }
  return element;
}

const std::byte* Tensor::origin() const { return storage_.data() + layout_.offset * static_cast<std::int64_t>(size_of(layout_.dtype)); }

double Tensor::at(std::span<const std::int64_t> index) const {
  return load(layout_.dtype, storage_.data() + element_of(index) * static_cast<std::int64_t>(size_of(layout_.dtype)));
}

void Tensor::set(std::span<const std::int64_t> index, double value) {
  assert(writable_);
  const auto* place = storage_.data() + element_of(index) * static_cast<std::int64_t>(size_of(layout_.dtype));
  store(layout_.dtype, const_cast<std::byte*>(place), value);
}

std::span<const std::byte> Tensor::contiguous_bytes() const {
  assert(layout_.is_contiguous());
  if (storage_.empty()) return {};
  return {origin(), static_cast<std::size_t>(count()) * size_of(layout_.dtype)};
}

std::span<std::byte> Tensor::mutable_bytes() {
  assert(writable_);
  const auto bytes = contiguous_bytes();
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};  // allocate() made them, not const
}

std::vector<double> Tensor::values() const {
  const auto dense = contiguous();  // gathering in the storage's own dtype first is cheaper than converting element by element
  if (dense.empty()) return {};
  std::vector<double> values(static_cast<std::size_t>(dense.count()));
  load_many(dense.dtype(), dense.contiguous_bytes().data(), values.size(), values.data());
  return values;
}

std::vector<double> Tensor::linear_values(std::int64_t count) const {
  std::vector<double> values(static_cast<std::size_t>(count), std::numeric_limits<double>::quiet_NaN());
  const auto available = static_cast<std::int64_t>(storage_.size() / size_of(layout_.dtype)) - layout_.offset;
  if (available > 0) load_many(layout_.dtype, origin(), static_cast<std::size_t>(std::min(count, available)), values.data());
  return values;
}

Tensor Tensor::contiguous() const { return layout_.is_contiguous() ? *this : copy(); }

Tensor Tensor::copy() const {
  auto result = allocate(layout_.dtype, layout_.shape, false);
  if (!result.empty()) gather(layout_, origin(), result.mutable_bytes().data());
  return result;
}

Tensor Tensor::cast(DType dtype) const {
  if (dtype == layout_.dtype) return *this;
  const auto source = contiguous();
  auto result = allocate(dtype, layout_.shape, false);
  if (result.empty()) return result;
  const auto count = static_cast<std::size_t>(result.count());
  const auto* from = source.contiguous_bytes().data();
  auto* to = result.mutable_bytes().data();
  // f32 holds every value of the narrower floats; all else goes through f64.
  const bool narrow = is_float(layout_.dtype) && layout_.dtype != DType::f64;
  narrow ? cast_through<float>(layout_.dtype, from, dtype, to, count) : cast_through<double>(layout_.dtype, from, dtype, to, count);
  return result;
}

Tensor Tensor::transposed(int axis_a, int axis_b) const {
  const auto place = [&](int axis) { return static_cast<std::size_t>(axis < 0 ? axis + rank() : axis); };
  assert(place(axis_a) < layout_.shape.size() && place(axis_b) < layout_.shape.size());
  auto view = *this;
  std::swap(view.layout_.shape[place(axis_a)], view.layout_.shape[place(axis_b)]);
  std::swap(view.layout_.strides[place(axis_a)], view.layout_.strides[place(axis_b)]);
  return view;
}

Tensor Tensor::sliced(int axis, std::int64_t begin, std::int64_t end) const {
  const auto place = static_cast<std::size_t>(axis < 0 ? axis + rank() : axis);
  assert(place < layout_.shape.size() && 0 <= begin && begin <= end && end <= layout_.shape[place]);
  auto view = *this;
  view.layout_.shape[place] = end - begin;
  if (end > begin && count() > 0) view.layout_.offset += begin * layout_.strides[place];  // an empty view stays where it is, in bounds
  return view;
}

Tensor Tensor::reshaped(Shape shape) const {
  assert(checked_count(shape) == count());
  auto strides = reshaped_strides(layout_, shape);
  auto view = strides ? *this : copy();
  view.layout_.strides = strides ? std::move(*strides) : row_major_strides(shape);
  view.layout_.shape = std::move(shape);
  return view;
}

Tensor Tensor::with_storage_id(std::uint64_t id) const {
  auto view = *this;
  view.layout_.storage_id = id;
  return view;
}

}  // namespace culprit
