#pragma once
// The ops in float64: what decoding means. Inputs are the values that an engine recorded (exact in double); results carry the error of
// double arithmetic only. Threads share work over outputs; results do not depend on their number.
#include <cstdint>
#include <span>
#include <vector>

#include "decode/facts.h"
#include "tensor/coordinates.h"
#include "tensor/tensor.h"

namespace culprit {

/// Contiguous float64 values with a shape.
struct Array {
  Shape shape;
  std::vector<double> values;
  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(values.size()); }
};
[[nodiscard]] Array to_array(const Tensor& tensor);
[[nodiscard]] Tensor to_tensor(const Array& array, DType dtype);

/// table [vocab, channel]; tokens [row][token] -> [row, token, channel].
[[nodiscard]] Array embedding(const Tensor& table, const std::vector<std::vector<int>>& tokens);

/// x * factor.
[[nodiscard]] Array scale(const Array& x, double factor);

/// x [.., channel], weight [channel]; y = x / sqrt(mean(x^2) + epsilon) * weight, or * (weight + 1) with `unit_offset`.
[[nodiscard]] Array rms_norm(const Array& x, std::span<const double> weight, double epsilon, bool unit_offset = false);

/// x [n, in] (n rows, contiguous), weight [out, in] of any float dtype, contiguous; out [n, out]. With `magnitude`, also sum |x_i w_i|
/// for each output (same shape). Blocked over the weight so that each of its rows is read and converted once.
void linear(std::span<const double> x, std::int64_t n, const Tensor& weight, std::span<double> out, std::span<double> magnitude = {});

/// Inverse frequencies [dims / 2] with scaling applied, radians per position.
[[nodiscard]] std::vector<double> rope_frequencies(const RopeFacts& facts);
/// x [row, head, token, channel]; position [row][token].
[[nodiscard]] Array rope(const Array& x, const RopeFacts& facts, const std::vector<std::vector<std::int64_t>>& position);

/// Which cache slots token t of row r may see: live slots (slot position >= 0) at positions <= its own and, with a `window` > 0, > its own -
/// window.
[[nodiscard]] inline bool is_visible(std::int64_t slot_position, std::int64_t own_position, int window) {
  return slot_position >= 0 && slot_position <= own_position && (window == 0 || slot_position > own_position - window);
}

/// is_visible of each slot, [row, token, slot], row-major. A token of left padding sees nothing live: it sees its own slot, the step's
/// tokens being the last slots, so that no NaN comes about that a product with a weight of 0 would spread.
[[nodiscard]] std::vector<std::uint8_t> visible_slots(const Coordinates& at, int window);

/// q [row, head, token, channel], k and v [row, kv_head, slot, channel]; heads / kv_heads query heads share a kv head, in order.
/// visible [row, token, slot]: what a token does not see is not read. A token that sees no slot gives NaN.
[[nodiscard]] Array sdpa(const Array& q, const Array& k, const Array& v, double scale, std::span<const std::uint8_t> visible);
[[nodiscard]] Array sdpa(const Array& q, const Array& k, const Array& v, double scale, const Coordinates& at, int window = 0);

/// gate * sigmoid(gate) * up.
[[nodiscard]] Array swiglu(const Array& gate, const Array& up);
/// gelu(gate) * up, gelu in its tanh form (Hendrycks and Gimpel, Gaussian Error Linear Units, 2016, section 2).
[[nodiscard]] Array geglu(const Array& gate, const Array& up);
[[nodiscard]] Array add(const Array& x, const Array& y);
/// x [row, head, token, channel] -> [row, token, channel], the values of one head.
[[nodiscard]] Array select_head(const Array& x, int head);
/// cap * tanh(x / cap).
[[nodiscard]] Array softcap(const Array& x, double cap);

/// The constants of gelu's tanh form.
inline constexpr double kGeluScale = 0.79788456080286535588;  // sqrt(2 / pi)
inline constexpr double kGeluCubic = 0.044715;

/// Channels [begin, begin + channels) of each vector.
[[nodiscard]] Array slice_channels(const Array& x, std::int64_t begin, std::int64_t channels);
/// x * y; y has x's shape, or one channel that counts for all of x's.
[[nodiscard]] Array multiply(const Array& x, const Array& y);
[[nodiscard]] Array sigmoid(const Array& x);
[[nodiscard]] Array silu(const Array& x);

/// Whether each token of the step is padding, [row, token]: its position is in no live slot, not even its own.
[[nodiscard]] std::vector<std::uint8_t> padding_tokens(const Coordinates& at);

/// [row, token, head * channel] <-> [row, head, token, channel].
[[nodiscard]] Array split_heads(const Array& x, int heads);
[[nodiscard]] Array merge_heads(const Array& x);

}  // namespace culprit
