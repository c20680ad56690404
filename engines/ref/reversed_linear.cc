#include "engines/ref/reversed_linear.h"

#include <vector>

#include "base/pool.h"

namespace culprit::ref {

Tensor reversed_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, DType dtype) {
  const auto in = static_cast<std::size_t>(weight.dim(1)), out = static_cast<std::size_t>(weight.dim(0));
  const auto input = x.contiguous();
  const auto matrix = weight.contiguous();
  const auto count = static_cast<std::size_t>(input.count()) / in;
  std::vector<float> values(count * in);
  load_many(input.dtype(), input.contiguous_bytes().data(), values.size(), values.data());
  const auto added = bias.empty() ? std::vector<double>(out) : bias.values();
  std::vector<double> sums(count * out);
  parallel_for(out, 16, [&](std::size_t begin, std::size_t end) {
    std::vector<float> row(in);
    for (std::size_t o = begin; o < end; ++o) {
      load_many(matrix.dtype(), matrix.contiguous_bytes().data() + o * in * size_of(matrix.dtype()), in, row.data());
      for (std::size_t n = 0; n < count; ++n) {
        auto sum = static_cast<float>(added[o]);
        for (std::size_t i = in; i-- > 0;) sum += values[n * in + i] * row[i];
        sums[n * out + o] = static_cast<double>(sum);
      }
    }
  });
  auto shape = x.shape();
  shape.back() = static_cast<std::int64_t>(out);
  return Tensor::from_values(dtype, shape, sums);
}

}  // namespace culprit::ref
