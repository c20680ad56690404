#pragma once
// The protocol's `op` request: one op on given operands, without a model.
#include "base/json.h"
#include "base/result.h"
#include "engines/kit/backend.h"

namespace culprit::kit {

/// Runs the op that `request` describes (docs/protocol.md), writes its output and returns the fields of the answer. Operands are checked
/// before the engine sees them. Error ids: plan-invalid, json-invalid, dtype-unknown, tokens-invalid, tensor-layout, fault-unknown,
/// fault-parameter, not-supported, engine-error, and those of the reader and the writer.
[[nodiscard]] Result<Json> answer_op(Backend& backend, const Json& request);

}  // namespace culprit::kit
