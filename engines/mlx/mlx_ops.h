#pragma once
// The decode ops as MLX runs them, in one or more variants each. What a variant computes is MLX's business; which MLX functions it is made
// of is stated here.
#include <string>
#include <vector>

#include "mlx_array.h"

namespace culprit::mlx_engine {

struct OpVariant {
  Op op;
  const char* name;
  const char* accumulate;  // "f32", or "dtype": MLX rounds the steps inside to the tensor's own dtype
  Result<mx::array> (*run)(const kit::OpRequest& request);
};

/// The default of each op stands first among its own.
///   embedding.take     take(weight, ids)
///   scale.eager        x * factor
///   rms_norm.fused     fast::rms_norm; weight + 1 in the dtype where the node asks for it
///   rms_norm.composed  f32: x * rsqrt(mean(x^2) + epsilon) * weight, one rounding
///   linear.dense       matmul(x, weight^T), weight^T a view of [out, in]; addmm with a bias
///   linear.reversed    the same with the channels of both in reverse order: other sums, equally legal
///   linear.quantized   quantized_matmul; scales and biases in the dtype of x, as MLX's own checkpoints have them; then + bias
///   rope.fused         fast::rope
///   rope.composed      f32: positions, angles, cos, sin, rotation; one rounding
///   sdpa.fused         fast::scaled_dot_product_attention; a boolean mask where a window cuts something off
///   sdpa.composed      f32: matmul, additive mask, softmax, matmul; one rounding
///   swiglu.composed    gate * sigmoid(gate) * up, as mlx_lm has it
///   geglu.composed     gelu_approx(gate) * up, as mlx_lm has it
///   add.eager          x + y
///   softcap.eager      factor * tanh(x / factor)
///   slice.eager        a view
///   multiply.eager     x * y
///   sigmoid.eager      sigmoid(x)
///   silu.composed      x * sigmoid(x), as mlx_lm has it
///   route.eager, expert_linear.gathered, expert_linear.quantized, expert_sum.composed: mlx_experts.h
///   causal_conv.eager, l2_norm.fused, delta_decay.composed, delta_state.composed, delta_out.composed: mlx_delta.h
[[nodiscard]] std::span<const OpVariant> op_variants();
/// nullptr when there is no such variant.
[[nodiscard]] const OpVariant* find_variant(Op op, std::string_view name);

}  // namespace culprit::mlx_engine
