#include <algorithm>
#include <cassert>
#include <vector>

#include "base/pool.h"
#include "decode/linear_kernel.h"
#include "decode/ops.h"

namespace culprit {
namespace {
constexpr std::size_t kRowsPerTask = 8 * kLinearRows;

/// As load_many to double; by way of f32, which holds every f16 and bf16 and whose conversions are vectorised.
class Widener {
 public:
  Widener(DType dtype, std::size_t count) : dtype_(dtype), narrow_(size_of(dtype) == 2 ? count : 0) {}
  void widen(const std::byte* source, std::size_t count, double* out) {
    if (narrow_.empty()) return load_many(dtype_, source, count, out);
    load_many(dtype_, source, count, narrow_.data());
    std::copy_n(narrow_.begin(), count, out);
  }

 private:
  DType dtype_;
  std::vector<float> narrow_;
};
}  // namespace

void linear(std::span<const double> x, std::int64_t n, const Tensor& weight, std::span<double> out, std::span<double> magnitude) {
  assert(weight.rank() == 2 && is_float(weight.dtype()));
  const auto rows = static_cast<std::size_t>(weight.dim(0));
  const auto in = static_cast<std::size_t>(weight.dim(1));
  const auto inputs = static_cast<std::size_t>(n);
  assert(x.size() == inputs * in && out.size() == inputs * rows);
  assert(magnitude.empty() || magnitude.size() == out.size());
  const auto bytes = weight.contiguous_bytes();
  const auto row_bytes = in * size_of(weight.dtype());
  const auto kernel = linear_kernel();
  parallel_for(rows, kRowsPerTask, [&](std::size_t begin, std::size_t end) {
    std::vector<double> converted(kLinearRows * in);
    Widener widener(weight.dtype(), converted.size());
    for (auto row = begin; row < end; row += kLinearRows) {
      const auto count = std::min(kLinearRows, end - row);
      if (!bytes.empty()) widener.widen(bytes.data() + row * row_bytes, count * in, converted.data());
      kernel({.x = x.data(),
              .weight = converted.data(),
              .out = out.data() + row,
              .magnitude = magnitude.empty() ? nullptr : magnitude.data() + row,
              .n = inputs,
              .in = in,
              .weight_rows = count,
              .out_stride = rows});
    }
  });
}

}  // namespace culprit
