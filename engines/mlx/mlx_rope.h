#pragma once
// Rotary embedding, MLX's own and one made of explicit ops that is right in every release.
#include "mlx_array.h"

namespace culprit::mlx_engine {

/// x [row, head, token, channel], or [row * head, token, channel] after a collapse; offsets: one, or one per row.
[[nodiscard]] Result<mx::array> rope_fused(const kit::OpRequest& request);
[[nodiscard]] Result<mx::array> rope_composed(const kit::OpRequest& request);

}  // namespace culprit::mlx_engine
