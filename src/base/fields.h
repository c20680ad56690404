#pragma once
// Reads a JSON object field by field, strictly: a missing, mistyped, out-of-range or unknown field is an error, never a default.
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace culprit {

// Each reads `json` into `out` without any conversion that could lose something (1.5 is no int, true is no number); false when it does not
// fit.
[[nodiscard]] bool read_json(const Json& json, bool& out);
[[nodiscard]] bool read_json(const Json& json, std::string& out);
[[nodiscard]] bool read_json(const Json& json, std::filesystem::path& out);
/// Also "nan", "inf", "-inf" and hex floats, as json_number and hex_float write them.
[[nodiscard]] bool read_json(const Json& json, double& out);

template <std::integral T>
[[nodiscard]] bool read_json(const Json& json, T& out) {
  if (json.is_number_unsigned()) {
    const auto value = json.get<std::uint64_t>();
    if (value > static_cast<std::uint64_t>(std::numeric_limits<T>::max())) return false;
    out = static_cast<T>(value);
    return true;
  }
  if (!json.is_number_integer()) return false;
  const auto value = json.get<std::int64_t>();
  if constexpr (std::unsigned_integral<T>) {
    if (value < 0) return false;
  } else if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max()) {
    return false;
  }
  out = static_cast<T>(value);
  return true;
}

template <class T>
[[nodiscard]] bool read_json(const Json& json, std::vector<T>& out) {
  if (!json.is_array()) return false;
  out.assign(json.size(), T{});
  for (std::size_t i = 0; i < out.size(); ++i)
    if (!read_json(json[i], out[i])) return false;
  return true;
}

template <class T>
[[nodiscard]] bool read_json(const Json& json, std::map<std::string, T>& out) {
  if (!json.is_object()) return false;
  out.clear();
  for (const auto& [key, value] : json.items())
    if (!read_json(value, out[key])) return false;
  return true;
}

/// The fields of one object. The first error is kept; `done` returns it, or the first field that nobody asked for.
class Fields {
 public:
  /// `what` names the object in messages; errors have the id `error_id`. `object` must outlive this.
  Fields(const Json& object, std::string_view what, std::string_view error_id);

  template <class T>
  Fields& required(const char* key, T& out) {
    const auto* value = find(key);
    if (value == nullptr) missing(key);
    if (value != nullptr) read(key, *value, out);
    return *this;
  }
  /// Leaves `out` alone when there is no such field.
  template <class T>
  Fields& optional(const char* key, T& out) {
    if (const auto* value = find(key)) read(key, *value, out);
    return *this;
  }
  /// The field as it stands, for values with a reader of their own; nullptr when absent.
  [[nodiscard]] const Json* find(const char* key);
  [[nodiscard]] Result<void> done(bool others_allowed = false) const;

 private:
  template <class T>
  void read(const char* key, const Json& value, T& out) {
    if (!read_json(value, out)) wrong(key, value);
  }
  void missing(const char* key);
  void wrong(const char* key, const Json& value);

  const Json& object_;
  std::string what_;
  std::string error_id_;
  std::string first_error_;
  std::set<std::string> known_;
};

}  // namespace culprit
