#pragma once
// JSON for people and for programs.
#include <string>

#include "base/json.h"

namespace culprit::cli {

/// {"schema": schema, "version": 1, ..fields}
[[nodiscard]] Json document(const char* schema, Json fields);
/// "key  value" lines, nested objects indented, lists of plain values on one line.
[[nodiscard]] std::string indented_text(const Json& object);

}  // namespace culprit::cli
