#include "audit/ops/linear.h"

#include <algorithm>
#include <cmath>

#include "base/pool.h"
#include "decode/ops.h"

namespace culprit {
namespace {

// Roundings of one term besides those of its sum: scale * q, its sum with the bias, and the auditor's own rounding of that value to f32.
constexpr int kQuantizedRoundings = 3;

// sqrt(sum over k of max(s_k^2, (y - s_k)^2) + roundings * sum of m_k^2) for each output, in index order: s_k the sum of the first k
// terms, m_k the magnitude of a term. A bias is the last term, and is not made of parts.
void chain_norms(std::span<const double> x, std::int64_t n, const Tensor& weight, const Tensor& magnitude, bool has_bias, int roundings,
                 std::span<const double> value, std::span<double> norms, unsigned threads) {
  const std::int64_t out = weight.dim(0), in = weight.dim(1);
  const auto weight_bytes = weight.contiguous_bytes();
  const auto magnitude_bytes = magnitude.empty() ? weight_bytes : magnitude.contiguous_bytes();
  const auto magnitude_dtype = magnitude.empty() ? weight.dtype() : magnitude.dtype();
  constexpr std::size_t kLanes = 8;  // tokens at a time, so that the chains of several run side by side
  const auto width = static_cast<std::size_t>(in), count = static_cast<std::size_t>(n);
  const std::size_t blocks = (count + kLanes - 1) / kLanes;
  std::vector<double> lanes(blocks * width * kLanes, 0.0);
  for (std::size_t token = 0; token < count; ++token)
    for (std::size_t i = 0; i < width; ++i) lanes[(token / kLanes * width + i) * kLanes + token % kLanes] = x[token * width + i];
  parallel_for(
      static_cast<std::size_t>(out), 16,
      [&](std::size_t begin, std::size_t end) {
        std::vector<double> row(width), row_magnitude(width);
        for (std::size_t j = begin; j < end; ++j) {
          load_many(weight.dtype(), weight_bytes.data() + j * width * size_of(weight.dtype()), width, row.data());
          load_many(magnitude_dtype, magnitude_bytes.data() + j * width * size_of(magnitude_dtype), width, row_magnitude.data());
          for (std::size_t block = 0; block < blocks; ++block) {
            const std::size_t tokens = std::min(kLanes, count - block * kLanes);
            double whole[kLanes] = {}, partial[kLanes] = {}, squares[kLanes] = {}, terms[kLanes] = {};
            for (std::size_t lane = 0; lane < tokens; ++lane)
              whole[lane] = value[(block * kLanes + lane) * static_cast<std::size_t>(out) + j];
            const double* inputs = &lanes[block * width * kLanes];
            for (std::size_t i = 0; i < width; ++i, inputs += kLanes)
              for (std::size_t lane = 0; lane < kLanes; ++lane) {
                const double term = inputs[lane] * row_magnitude[i];
                partial[lane] += inputs[lane] * row[i];
                const double rest = whole[lane] - partial[lane];
                squares[lane] += std::max(partial[lane] * partial[lane], rest * rest);
                terms[lane] += term * term;
              }
            for (std::size_t lane = 0; has_bias && lane < tokens; ++lane) squares[lane] += whole[lane] * whole[lane];
            for (std::size_t lane = 0; lane < tokens; ++lane)
              norms[(block * kLanes + lane) * static_cast<std::size_t>(out) + j] = std::sqrt(squares[lane] + roundings * terms[lane]);
          }
        }
      },
      threads);
}

}  // namespace

// Default arithmetic: n products and their sum in f32, in any order, rounded once: gamma_n sum |x w| + u |y|; underflow of a product adds
// its eta. A weight made of parts has larger terms (scale q and bias may cancel) and more roundings each. A bias is one term more of the
// same sum: x w^T + b is one op with one rounding.
//
// Accumulation in the dtype: the worst case gamma_n(u) sum |x w| is vacuous for n u near 1, and so is Higham and Mary's gamma_probable in
// bf16, since it allows each partial sum to be as large as sum |x w|. The error of a chain of additions is sum d_k s_k with the actual
// partial sums s_k and |d_k| <= u (Higham, section 4.2). With the d_k a martingale difference sequence, as in Higham and Mary's model,
// Azuma's inequality bounds it by lambda u sqrt(sum s_k^2) (Ipsen and Zhou, Probabilistic Error Analysis for Inner Products, SIAM J. Matrix
// Anal. Appl. 41(4), 2020, section 4, for a known order). Errors of earlier steps feed later partial sums, which multiplies the variance by
// at most (1 + u^2)^n <= exp(n u^2). The order of an engine is not declared, so at each k the larger of the partial sums from either end
// counts; a sum in blocks has shorter chains. Products, and the parts of a weight, add their own d_k times their terms. The model fails
// where roundings are biased: a sum so large that its terms are swallowed. A `precision` finding is the milder claim, and what lies outside
// both bounds is judged with that assumption stated in docs/decisions/0002.
LinearBounds bounded_linear(std::span<const double> x, std::int64_t n, const Tensor& weight, const Tensor& magnitude, const Tensor& bias,
                            DType dtype, const Arithmetic& arithmetic, unsigned threads) {
  const std::int64_t out = weight.dim(0), in = weight.dim(1);
  const auto count = static_cast<std::size_t>(n * out);
  LinearBounds result;
  result.value.resize(count);
  std::vector<double> sums(count);
  if (magnitude.empty()) {
    linear(x, n, weight, result.value, sums);
  } else {
    linear(x, n, weight, result.value);
    std::vector<double> absolute(x.size());
    std::ranges::transform(x, absolute.begin(), [](double value) { return std::abs(value); });
    linear(absolute, n, magnitude, sums);
  }
  if (!bias.empty()) {
    const auto added = bias.values();
    for (std::size_t i = 0; i < count; ++i) {
      result.value[i] += added[i % added.size()];
      sums[i] += std::abs(added[i % added.size()]);
    }
  }
  const std::int64_t terms = in + (bias.empty() ? 0 : 1);
  const int extra = magnitude.empty() ? 0 : kQuantizedRoundings;
  const auto units = units_of(dtype, standard_arithmetic(arithmetic));
  const double inside = units.sum(terms + extra);
  const double underflow = static_cast<double>(in) * units.step_eta;
  result.bound.resize(count);
  for (std::size_t i = 0; i < count; ++i) result.bound[i] = rounded_once(units, result.value[i], inside * sums[i] + underflow);

  const auto declared = units_of(dtype, arithmetic);
  if (!declared.in_dtype) return result;
  result.standard = std::move(result.bound);
  result.bound.resize(count);
  result.deviation.resize(count);
  chain_norms(x, n, weight, magnitude, !bias.empty(), 1 + extra, result.value, result.deviation, threads);
  const double deviation = declared.step * std::exp(static_cast<double>(terms + extra) * declared.step * declared.step / 2);
  const double declared_underflow = static_cast<double>(in) * (1 + extra) * declared.step_eta;
  const double threshold = overflow_threshold(dtype);
  for (std::size_t i = 0; i < count; ++i) {
    // A partial sum that may overflow makes any outcome legal.
    result.deviation[i] *= deviation;
    const double inner = sums[i] >= threshold ? HUGE_VAL : lambda_for(1) * result.deviation[i] + declared_underflow;
    result.bound[i] = std::max(result.standard[i], rounded_once(declared, result.value[i], inner));
  }
  return result;
}

// The model's variance is at most that of roundings that are always as large as u allows, which no data does: their mean square is about
// u^2 / 6. The final rounding is that of the last addition.
bool errors_as_accumulated_in_dtype(const LinearBounds& bounds, std::span<const double> actual) {
  double squares = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double error = actual[i] - bounds.value[i];
    if (error == 0) continue;
    squares += error / bounds.deviation[i] * (error / bounds.deviation[i]);
  }
  return squares <= static_cast<double>(actual.size());
}

}  // namespace culprit
