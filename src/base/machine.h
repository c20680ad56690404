#pragma once
// What the machine has.
#include <cstdint>

namespace culprit {

/// 0 where the system does not say.
[[nodiscard]] std::int64_t physical_memory_bytes();

}  // namespace culprit
