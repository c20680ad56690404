#include "cli/json_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace culprit::cli {
namespace {

std::string plain(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

bool is_plain_list(const Json& value) {
  return value.is_array() && std::ranges::none_of(value, [](const Json& item) { return item.is_structured(); });
}

std::string joined(const Json& list) {
  std::string text;
  for (const auto& item : list) text += (text.empty() ? "" : ", ") + plain(item);
  return text;
}

void append(std::string& text, const Json& object, std::size_t indent) {
  std::size_t width = 0;
  for (const auto& [key, value] : object.items())
    if (!value.is_structured() || is_plain_list(value)) width = std::max(width, key.size());
  for (const auto& [key, value] : object.items()) {
    const std::string margin(indent, ' ');
    if (is_plain_list(value)) {
      text += fmt::format("{}{:<{}}  {}\n", margin, key, width, joined(value));
    } else if (value.is_array()) {
      text += fmt::format("{}{}\n", margin, key);
      for (const auto& item : value) text += fmt::format("{}  {}\n", margin, item.dump());
    } else if (value.is_object()) {
      text += fmt::format("{}{}\n", margin, key);
      append(text, value, indent + 2);
    } else {
      text += fmt::format("{}{:<{}}  {}\n", margin, key, width, plain(value));
    }
  }
}

}  // namespace

Json document(const char* schema, Json fields) {
  Json json = {{"schema", schema}, {"version", 1}};
  for (auto& [key, value] : fields.items()) json[key] = std::move(value);
  return json;
}

std::string indented_text(const Json& object) {
  std::string text;
  append(text, object, 0);
  return text;
}

}  // namespace culprit::cli
