#pragma once
// JSON as nlohmann::ordered_json (keys keep their order), with numbers that survive: NaN and infinities are strings, exact values hex
// floats.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace culprit {

using Json = nlohmann::ordered_json;

/// Parses `text`; error id json-invalid, with `where` given through.
[[nodiscard]] Result<Json> parse_json(std::string_view text, std::string where = {});
[[nodiscard]] Result<Json> read_json_file(const std::filesystem::path& path);

/// A finite double as a JSON number; NaN, inf and -inf as strings.
[[nodiscard]] Json json_number(double value);
/// A double as a hex float string ("0x1.8p+1"), exact.
[[nodiscard]] std::string hex_float(double value);
/// Reads what json_number or hex_float wrote; error id json-invalid.
[[nodiscard]] Result<double> number_from(const Json& value);

/// Field access with a clear error (json-invalid): `get<int>(object, "id", "hello")`.
template <class T>
[[nodiscard]] Result<T> get_field(const Json& object, const char* key, std::string_view what) {
  if (!object.is_object() || !object.contains(key)) return fail("json-invalid", std::string(what) + ": field '" + key + "' is missing");
  try {
    return object.at(key).get<T>();
  } catch (const nlohmann::json::exception&) {
    return fail("json-invalid", std::string(what) + ": field '" + key + "' has the wrong type");
  }
}

}  // namespace culprit
