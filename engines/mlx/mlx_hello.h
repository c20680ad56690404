#pragma once
// What the driver says of itself: which libmlx this process really has loaded, and every switch that shapes its results.
#include "base/json.h"
#include "base/result.h"

namespace culprit::mlx_engine {

/// Fields of the `hello` answer that are MLX's own. Error ids: engine-error when the loaded library cannot be found or read.
[[nodiscard]] Result<Json> describe();

}  // namespace culprit::mlx_engine
