#pragma once
// What attention may see, for backends that take a mask.
#include "engines/kit/backend.h"
#include "tensor/coordinates.h"

namespace culprit::kit {

/// The mask of OpRequest, by is_visible; one row when all rows see the same. nullptr when each token sees all slots up to its own and the
/// step's tokens are the last slots: then a backend needs none.
[[nodiscard]] Result<Array> attention_mask(Backend& backend, const Coordinates& at, int window);

}  // namespace culprit::kit
