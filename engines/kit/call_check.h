#pragma once
// Whether an op's operands fit each other: engines need not survive what they would never be given.
#include <cstdint>
#include <span>

#include "base/result.h"
#include "fault/fault.h"

namespace culprit::kit {

/// `offset`: of rope, as the engine gets it. The positions in call.context are not looked at. Error ids: plan-invalid (an operand is
/// missing or of another dtype), tensor-layout (shapes do not fit), tokens-invalid.
[[nodiscard]] Result<void> check_operands(const OpCall& call, std::span<const std::int64_t> offset);

}  // namespace culprit::kit
