#include "mlx_backend.h"

#include <fmt/format.h>

#include <exception>

#include "mlx_checkpoint.h"
#include "mlx_hello.h"
#include "mlx_ops.h"

namespace culprit::mlx_engine {
namespace {

// MLX reports by exceptions whose text begins with "[op]"; they become errors here and go no further.
template <class Body>
auto guarded(std::string_view where, Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception& error) {
    return fail("engine-error", error.what(), std::string(where));
  }
}

struct Range {
  mx::Shape start, stop;
};

// The whole of `shape` but [begin, end) on `axis`. MLX clamps ranges in silence, so they are checked here.
Result<Range> range_of(const mx::Shape& shape, int axis, std::int64_t begin, std::int64_t end) {
  const int rank = static_cast<int>(shape.size());
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) return fail("tensor-layout", fmt::format("axis {} of a tensor of rank {}", axis, rank));
  const auto at = static_cast<std::size_t>(axis);
  if (begin < 0 || end < begin || end > shape[at])
    return fail("tensor-layout", fmt::format("[{}, {}) does not lie in an axis of length {}", begin, end, shape[at]));
  Range range{mx::Shape(shape.size(), 0), shape};
  range.start[at] = static_cast<mx::ShapeElem>(begin);
  range.stop[at] = static_cast<mx::ShapeElem>(end);
  return range;
}

std::vector<mx::array> present(std::span<const kit::Array> arrays) {
  std::vector<mx::array> list;
  for (const auto& array : arrays)
    if (array != nullptr) list.push_back(unwrap(array));
  return list;
}

}  // namespace

Json MlxBackend::hello() {
  if (hello_.is_null()) {
    auto described = describe();
    if (!described) return {{"engine", "mlx"}, {"version", mx::version()}, {"error", to_string(described.error())}};
    hello_ = std::move(*described);
  }
  return hello_;
}

std::vector<std::string> MlxBackend::variants(Op op) {
  std::vector<std::string> names;
  for (const auto& variant : op_variants())
    if (variant.op == op) names.emplace_back(variant.name);
  return names;
}

Result<kit::Array> MlxBackend::from_host(const Tensor& tensor) {
  return guarded("from_host", [&]() -> Result<kit::Array> { return to_mlx(tensor).map(wrap); });
}

Result<Tensor> MlxBackend::to_host(const kit::Array& array) {
  return guarded("to_host", [&] { return mlx_engine::to_host(unwrap(array), storage_ids_); });
}

Result<void> MlxBackend::eval(std::span<const kit::Array> arrays) {
  return guarded("eval", [&]() -> Result<void> {
    mx::eval(present(arrays));
    return {};
  });
}

Result<void> MlxBackend::async_eval(std::span<const kit::Array> arrays) {
  return guarded("async_eval", [&]() -> Result<void> {
    mx::async_eval(present(arrays));
    return {};
  });
}

Result<kit::Array> MlxBackend::apply(const kit::OpRequest& request) {
  const auto where = request.node == nullptr ? std::string_view() : std::string_view(request.node->output);
  const auto op = request.node->op;
  const auto* variant = find_variant(op, request.variant);
  if (variant == nullptr)
    return fail("not-supported", fmt::format("mlx has no variant '{}' of {}", request.variant, name_of(op)), std::string(where));
  return guarded(where, [&]() -> Result<kit::Array> {
    auto result = variant->run(request).map(wrap);
    if (!result && result.error().where.empty()) result.error().where = where;
    return result;
  });
}

Result<kit::Array> MlxBackend::reshape(const kit::Array& x, const Shape& shape) {
  return guarded("reshape", [&]() -> Result<kit::Array> {
    CULPRIT_TRY(auto target, to_mlx(shape));
    return wrap(mx::reshape(unwrap(x), std::move(target)));
  });
}

Result<kit::Array> MlxBackend::swap_axes(const kit::Array& x, int axis_a, int axis_b) {
  return guarded("swap_axes", [&]() -> Result<kit::Array> { return wrap(mx::swapaxes(unwrap(x), axis_a, axis_b)); });
}

Result<kit::Array> MlxBackend::concatenate(std::span<const kit::Array> parts, int axis) {
  return guarded("concatenate", [&]() -> Result<kit::Array> {
    std::vector<mx::array> arrays;
    for (const auto& part : parts) arrays.push_back(unwrap(part));
    return wrap(mx::concatenate(std::move(arrays), axis));
  });
}

Result<kit::Array> MlxBackend::slice(const kit::Array& x, int axis, std::int64_t begin, std::int64_t end) {
  return guarded("slice", [&]() -> Result<kit::Array> {
    CULPRIT_TRY(auto range, range_of(unwrap(x).shape(), axis, begin, end));
    return wrap(mx::slice(unwrap(x), std::move(range.start), std::move(range.stop)));
  });
}

Result<kit::Array> MlxBackend::slice_update(const kit::Array& x, const kit::Array& update, int axis, std::int64_t begin) {
  return guarded("slice_update", [&]() -> Result<kit::Array> {
    CULPRIT_TRY(auto range, range_of(unwrap(x).shape(), axis, begin, begin + unwrap(update).shape(axis)));
    return wrap(mx::slice_update(unwrap(x), unwrap(update), std::move(range.start), std::move(range.stop)));
  });
}

Result<kit::Array> MlxBackend::zeros(const Shape& shape, DType dtype) {
  return guarded("zeros", [&]() -> Result<kit::Array> {
    CULPRIT_TRY(auto target, to_mlx(shape));
    return wrap(mx::zeros(std::move(target), to_mlx(dtype)));
  });
}

Shape MlxBackend::shape(const kit::Array& x) { return from_mlx(unwrap(x).shape()); }

Result<std::vector<kit::Array>> MlxBackend::quantise(const kit::Array& x, int bits, int group) {
  return guarded("quantise", [&]() -> Result<std::vector<kit::Array>> {
    std::vector<kit::Array> planes;
    for (auto& plane : mx::quantize(unwrap(x), group, bits)) planes.push_back(wrap(std::move(plane)));
    return planes;
  });
}

Result<kit::Array> MlxBackend::dequantise(std::span<const kit::Array> planes, int bits, int group) {
  return guarded("dequantise", [&]() -> Result<kit::Array> {
    return wrap(mx::dequantize(unwrap(planes[0]), unwrap(planes[1]), unwrap(planes[2]), group, bits));
  });
}

Result<std::vector<std::pair<std::string, Weight>>> MlxBackend::load_checkpoint(const std::string& path) {
  return guarded("load_gguf", [&] { return load_gguf(path, storage_ids_); });
}

}  // namespace culprit::mlx_engine
