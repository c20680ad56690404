#pragma once
// A gated delta rule of MLX functions, as mlx_lm has it where there is no kernel for it.
#include "mlx_array.h"

namespace culprit::mlx_engine {

/// conv1d with a group for each channel.
[[nodiscard]] Result<mx::array> causal_conv_eager(const kit::OpRequest& request);
/// fast::rms_norm without a weight, then times factor / sqrt(channels).
[[nodiscard]] Result<mx::array> l2_norm_fused(const kit::OpRequest& request);
/// exp(-exp(f32(weight)) * logaddexp(x + bias, 0)): f32.
[[nodiscard]] Result<mx::array> delta_decay_composed(const kit::OpRequest& request);
/// Token after token, in f32.
[[nodiscard]] Result<mx::array> delta_state_composed(const kit::OpRequest& request);
/// sum(state * q) in f32, rounded to the dtype of q.
[[nodiscard]] Result<mx::array> delta_out_composed(const kit::OpRequest& request);

}  // namespace culprit::mlx_engine
