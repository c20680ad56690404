#pragma once
// The inner loop of `linear`: a few weight rows against all inputs, in double. One source, compiled for each instruction set that matters;
// the lanes and the order of additions are the same in all, so are the results, bit for bit.
#include <cstddef>

namespace culprit {

struct LinearBlock {
  const double* x;       // [n, in]
  const double* weight;  // [weight_rows, in]
  double* out;           // of input r and weight row j: out[r * out_stride + j]
  double* magnitude;     // as out: sums of |x_i w_i|; nullptr when not wanted
  std::size_t n;
  std::size_t in;
  std::size_t weight_rows;  // at most kLinearRows
  std::size_t out_stride;
};
constexpr std::size_t kLinearRows = 4;

using LinearKernel = void (*)(const LinearBlock&);
/// The fastest one for this processor.
[[nodiscard]] LinearKernel linear_kernel();
/// The one for every processor; the others must agree with it.
[[nodiscard]] LinearKernel linear_kernel_baseline();

}  // namespace culprit
