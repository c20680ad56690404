#pragma once
// Models of random shape.
#include "decode/architecture.h"
#include "qualify/dice.h"

namespace culprit {

/// Facts like those of the architecture's tiny model, with other counts: layers, heads, kv heads, channels, windows, experts, and RoPE's base,
/// pairing and scaling. They pass check_facts. `wide_heads`: every layer's heads have 32 channels, which a quantised cache's groups divide.
[[nodiscard]] Facts random_facts(const Architecture& architecture, Dice& dice, bool wide_heads);

}  // namespace culprit
