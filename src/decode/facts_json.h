#pragma once
// Facts as JSON: what model.json and the protocol's `op` request hold.
#include "base/json.h"
#include "base/result.h"
#include "decode/facts.h"

namespace culprit {

[[nodiscard]] Json to_json(const Facts& facts);
/// Every field must be there. Error ids: json-invalid. The facts may still not fit each other: check_facts.
[[nodiscard]] Result<Facts> facts_from_json(const Json& json);

}  // namespace culprit
