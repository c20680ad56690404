#include "base/fields.h"

#include <fmt/format.h>

namespace culprit {
namespace {
constexpr std::size_t kExcerptBytesMax = 60;

/// Containers are named, not shown: dumping one that is nested without limit would exhaust the stack.
std::string excerpt_of(const Json& value) {
  if (value.is_structured()) return value.type_name();
  auto text = value.dump(-1, ' ', true, Json::error_handler_t::replace);  // ASCII only, so that cutting splits no character
  if (text.size() > kExcerptBytesMax) text = text.substr(0, kExcerptBytesMax) + "...";
  return text;
}
}  // namespace

bool read_json(const Json& json, bool& out) {
  if (!json.is_boolean()) return false;
  out = json.get<bool>();
  return true;
}

bool read_json(const Json& json, std::string& out) {
  if (!json.is_string()) return false;
  out = json.get_ref<const std::string&>();
  return true;
}

bool read_json(const Json& json, std::filesystem::path& out) {
  if (!json.is_string()) return false;
  out = json.get_ref<const std::string&>();
  return true;
}

bool read_json(const Json& json, double& out) {
  const auto value = number_from(json);
  if (!value) return false;
  out = *value;
  return true;
}

Fields::Fields(const Json& object, std::string_view what, std::string_view error_id) : object_(object), what_(what), error_id_(error_id) {
  if (!object.is_object()) first_error_ = fmt::format("{}: expected an object, got {}", what_, excerpt_of(object));
}

const Json* Fields::find(const char* key) {
  known_.insert(key);
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

void Fields::missing(const char* key) {
  if (first_error_.empty()) first_error_ = fmt::format("{}: field '{}' is missing", what_, key);
}

void Fields::wrong(const char* key, const Json& value) {
  if (first_error_.empty())
    first_error_ = fmt::format("{}: field '{}' has the wrong type or is out of range: {}", what_, key, excerpt_of(value));
}

Result<void> Fields::done(bool others_allowed) const {
  if (!first_error_.empty()) return fail(error_id_, first_error_);
  if (others_allowed) return {};
  for (const auto& [key, value] : object_.items())
    if (!known_.contains(key)) return fail(error_id_, fmt::format("{}: there is no field '{}'", what_, key));
  return {};
}

}  // namespace culprit
