#pragma once
// The ops of a gated delta rule in float64 (Yang, Kautz, Hatamizadeh, Gated Delta Networks, 2024, with the heads and norms of Qwen 3.5).
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "decode/ops.h"

namespace culprit {

/// window [row, 1, kernel - 1 + token, channel], weight [channel, kernel] -> [row, 1, token, channel].
[[nodiscard]] Array causal_conv(const Array& window, std::span<const double> weight);
/// factor * x / sqrt(sum x^2 + kL2NormEpsilon).
[[nodiscard]] Array l2_norm(const Array& x, double factor);
inline constexpr double kL2NormEpsilon = 1e-6;  // of Qwen's gated delta rule
/// exp(-exp(log_rate) * softplus(x + bias)); x [row, token, head].
[[nodiscard]] Array delta_decay(const Array& x, std::span<const double> log_rate, std::span<const double> bias);
/// As Op::delta_state. `before` [row, head, 1 or token, value channel * key channel]: the state before the first token, or before each; or
/// empty: 0. `is_padding` [row, token] leaves the state as it was. The state is carried from token to token rounded to `dtype`.
[[nodiscard]] Array delta_state(const Array& k, const Array& v, const Array& decay, const Array& rate, const Array& before,
                                const std::vector<std::uint8_t>& is_padding, DType dtype);
/// As Op::delta_out.
[[nodiscard]] Array delta_out(const Array& q, const Array& state);

}  // namespace culprit
