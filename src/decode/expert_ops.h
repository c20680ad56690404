#pragma once
// The ops of a mixture of experts in float64: who goes where, and what comes back.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "decode/ops.h"

namespace culprit {

/// softmax of `scores` [expert].
[[nodiscard]] std::vector<double> softmax(std::span<const double> scores);
/// The numbers of the `used` largest, lower numbers first among equals; in order of number.
[[nodiscard]] std::vector<std::size_t> largest(std::span<const double> values, std::size_t used);
/// `shares` [expert] of the experts in `kept`, divided by their sum when `normalised`; the other weights are left alone.
void keep_experts(std::span<const double> shares, std::span<const std::size_t> kept, bool normalised, std::span<double> weights);
/// scores [row, token, expert] -> weights [row, token, expert], as Op::route has it.
[[nodiscard]] Array route(const Array& scores, int used, bool normalised);
/// The experts that a token takes by its routing weights [expert], in order of number: those above 0; where they are fewer than `used`, the
/// first of the rest as well, which count for nothing.
[[nodiscard]] std::vector<std::size_t> chosen_experts(std::span<const double> weights, std::size_t used);
/// What one expert is given: x [row, token, channel] or [row, choice, token, channel], vector by vector.
struct ExpertBatch {
  std::size_t expert = 0;
  std::vector<std::size_t> from;  // vectors of x
  std::vector<std::size_t> to;    // vectors of what it gives, [row, choice, token]
};
/// One for each expert that a token takes, in order of number; weights [row, token, expert].
[[nodiscard]] std::vector<ExpertBatch> expert_batches(const Array& x, const Array& weights, int used);
/// weight [expert, out, in] -> that expert's [out, in], contiguous.
[[nodiscard]] Tensor expert_weight(const Tensor& weight, std::size_t expert);
/// As Op::expert_linear; weight [expert, out, in] of any float dtype, contiguous.
[[nodiscard]] Array expert_linear(const Array& x, const Array& weights, const Tensor& weight, int used);
/// As Op::expert_sum.
[[nodiscard]] Array expert_sum(const Array& x, const Array& weights, int used);

}  // namespace culprit
