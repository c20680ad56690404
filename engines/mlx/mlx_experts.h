#pragma once
// A mixture of experts of MLX functions, as mlx_lm has it.
#include "mlx_array.h"

namespace culprit::mlx_engine {

/// softmax in f32 at least, rounded to the dtype; argpartition; take_along_axis; divided by the sum where the node asks for it; put back at
/// the experts' places.
[[nodiscard]] Result<mx::array> route_eager(const kit::OpRequest& request);
/// gather_mm with the experts of each token, in order of number; on a CPU, where it takes f32 only, on operands cast to f32.
[[nodiscard]] Result<mx::array> expert_linear_gathered(const kit::OpRequest& request);
/// gather_qmm on the packed weights.
[[nodiscard]] Result<mx::array> expert_linear_quantized(const kit::OpRequest& request);
/// sum(y * weight) over the choices.
[[nodiscard]] Result<mx::array> expert_sum_composed(const kit::OpRequest& request);

}  // namespace culprit::mlx_engine
