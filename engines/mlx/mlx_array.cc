#include "mlx_array.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <vector>

#include "tensor/strides.h"

namespace culprit::mlx_engine {
namespace {

// Byte offset of the array's first element in its storage. Releases before 0.29.4 do not tell it, but keep a pointer to the element.
template <class A>
std::int64_t byte_offset(A& array) {
  if constexpr (requires { array.offset(); })
    return array.offset();
  else
    return array.template data<std::uint8_t>() - static_cast<const std::uint8_t*>(array.buffer().raw_ptr());
}

template <class T>
mx::array copy_flat(std::span<const std::byte> bytes, mx::Shape shape, mx::Dtype dtype) {
  assert(bytes.size() % sizeof(T) == 0);
  std::vector<T> aligned(bytes.size() / sizeof(T));  // a mapped file's bytes may lie anywhere
  if (!bytes.empty()) std::memcpy(static_cast<void*>(aligned.data()), bytes.data(), bytes.size());
  return mx::array(aligned.begin(), std::move(shape), dtype);
}

// MLX's constructor converts each element from the iterator's type, so the types must be the same for the bits to stay.
mx::array copy_bits(std::span<const std::byte> bytes, mx::Shape shape, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return copy_flat<double>(bytes, std::move(shape), mx::float64);
    case DType::f32:
      return copy_flat<float>(bytes, std::move(shape), mx::float32);
    case DType::f16:
      return copy_flat<mx::float16_t>(bytes, std::move(shape), mx::float16);
    case DType::bf16:
      return copy_flat<mx::bfloat16_t>(bytes, std::move(shape), mx::bfloat16);
    case DType::i64:
      return copy_flat<std::int64_t>(bytes, std::move(shape), mx::int64);
    case DType::i32:
      return copy_flat<std::int32_t>(bytes, std::move(shape), mx::int32);
    case DType::u32:
      return copy_flat<std::uint32_t>(bytes, std::move(shape), mx::uint32);
    case DType::u8:
      return copy_flat<std::uint8_t>(bytes, std::move(shape), mx::uint8);
    case DType::boolean:
      return copy_flat<std::uint8_t>(bytes, std::move(shape), mx::bool_);  // 0 or not 0
  }
  assert(false);
  return mx::array(0);
}

}  // namespace

kit::Array wrap(mx::array array) { return std::make_shared<const mx::array>(std::move(array)); }

const mx::array& unwrap(const kit::Array& array) {
  assert(array != nullptr);
  return *static_cast<const mx::array*>(array.get());
}

Result<mx::Shape> to_mlx(const Shape& shape) {
  mx::Shape out;
  for (const auto n : shape) {
    if (n < 0 || n > std::numeric_limits<mx::ShapeElem>::max())
      return fail("not-supported", fmt::format("a dimension of {} does not fit MLX's 32-bit shapes", n));
    out.push_back(static_cast<mx::ShapeElem>(n));
  }
  return out;
}

Shape from_mlx(const mx::Shape& shape) { return {shape.begin(), shape.end()}; }

mx::Dtype to_mlx(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return mx::float64;
    case DType::f32:
      return mx::float32;
    case DType::f16:
      return mx::float16;
    case DType::bf16:
      return mx::bfloat16;
    case DType::i64:
      return mx::int64;
    case DType::i32:
      return mx::int32;
    case DType::u32:
      return mx::uint32;
    case DType::u8:
      return mx::uint8;
    case DType::boolean:
      return mx::bool_;
  }
  assert(false);
  return mx::float32;
}

Result<DType> from_mlx(mx::Dtype dtype) {
  for (const auto known : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u32, DType::u8, DType::boolean})
    if (to_mlx(known) == dtype) return known;
  return fail("not-supported", fmt::format("MLX dtype number {} has no counterpart", static_cast<int>(dtype.val())));
}

Result<mx::array> to_mlx(const Tensor& tensor) {
  const auto& layout = tensor.layout();
  CULPRIT_TRY(auto shape, to_mlx(layout.shape));
  if (layout.offset == 0 && layout.is_contiguous()) return copy_bits(tensor.contiguous_bytes(), std::move(shape), layout.dtype);

  const auto reach = reach_of(layout, tensor.count());
  assert(reach);  // a Tensor's layout was checked when it was made
  const auto storage = tensor.storage().first(static_cast<std::size_t>(reach->beyond) * size_of(layout.dtype));
  CULPRIT_TRY(auto flat_shape, to_mlx(Shape{reach->beyond}));
  const auto flat = copy_bits(storage, std::move(flat_shape), layout.dtype);
  return mx::as_strided(flat, std::move(shape), mx::Strides(layout.strides.begin(), layout.strides.end()),
                        static_cast<std::size_t>(layout.offset));
}

std::uint64_t StorageIds::id_of(const mx::array& evaluated) {
  const auto& storage = evaluated.data_shared_ptr();
  const auto known = known_.find(storage.get());
  if (known != known_.end() && !known->second.storage.expired()) return known->second.id;
  if (known_.size() >= prune_at_) {
    std::erase_if(known_, [](const auto& entry) { return entry.second.storage.expired(); });
    prune_at_ = std::max<std::size_t>(1024, 2 * known_.size());
  }
  const auto id = new_storage_id();
  known_.insert_or_assign(storage.get(), Known{storage, id});
  return id;
}

Result<Tensor> to_host(mx::array array, StorageIds& ids) {
  array.eval();
  Layout layout;
  CULPRIT_TRY(layout.dtype, from_mlx(array.dtype()));
  layout.shape = from_mlx(array.shape());
  layout.strides.assign(array.strides().begin(), array.strides().end());
  if (array.size() == 0) return Tensor::zeros(layout.dtype, layout.shape);

  const auto item = static_cast<std::int64_t>(size_of(layout.dtype));
  const auto offset = byte_offset(array);
  if (offset % item != 0) return fail("tensor-layout", fmt::format("offset of {} bytes is no multiple of the element's {}", offset, item));
  layout.offset = offset / item;
  layout.storage_id = ids.id_of(array);

  const auto count = element_count(layout.shape);
  const auto reach = reach_of(layout, count);
  const auto buffer_elements = static_cast<std::int64_t>(array.buffer_size()) / item;
  if (!reach || reach->lowest < 0 || reach->beyond > buffer_elements)
    return fail("tensor-layout", fmt::format("strides {} at offset {} reach outside of a buffer of {} elements", to_string(layout.strides),
                                             layout.offset, buffer_elements));
  const auto end = std::max(reach->beyond, std::min(layout.offset + count, buffer_elements));
  // On CPU and with unified memory the element's address is the host's; the storage begins `offset` bytes before it.
  const auto* begin = reinterpret_cast<const std::byte*>(array.data<std::uint8_t>()) - offset;
  auto copy = std::make_shared<std::vector<std::byte>>(begin, begin + end * item);
  const std::span<const std::byte> bytes(*copy);
  return Tensor::wrap(std::move(copy), bytes, std::move(layout));
}

Result<Tensor> to_host_contiguous(const mx::array& array, StorageIds& ids) {
  CULPRIT_TRY(const auto tensor, to_host(mx::contiguous(array), ids));
  return tensor.contiguous();
}

}  // namespace culprit::mlx_engine
