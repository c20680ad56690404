#include "qualify/condition_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>

namespace culprit {
namespace {

const std::map<std::string_view, bool (*)(const Observation&)>& fixed_predicates() {
  static const std::map<std::string_view, bool (*)(const Observation&)> all = {
      {"always", [](const Observation&) { return true; }},
      {"B > 1", [](const Observation& o) { return o.rows > 1; }},
      {"B = 1", [](const Observation& o) { return o.rows == 1; }},
      {"L > 1", [](const Observation& o) { return o.tokens > 1; }},
      {"L = 1", [](const Observation& o) { return o.tokens == 1; }},
      {"row > 0", [](const Observation& o) { return o.row > 0; }},
      {"row = 0", [](const Observation& o) { return o.row == 0; }},
      {"head > 0", [](const Observation& o) { return o.head > 0; }},
      {"token index > 0", [](const Observation& o) { return o.token > 0; }},
      {"rank 3", [](const Observation& o) { return o.rank == 3; }},
      {"rank 4", [](const Observation& o) { return o.rank == 4; }},
      {"position base > 0", [](const Observation& o) { return o.base > 0; }},
      {"cache not empty", [](const Observation& o) { return o.cached > 0; }},
      {"offset has one element", [](const Observation& o) { return o.offset_scalar; }},
      {"offset is a vector", [](const Observation& o) { return !o.offset_scalar; }},
      {"input is a strided view", [](const Observation& o) { return !o.input_contiguous; }},
      {"index of dimension 0 > 0", [](const Observation& o) { return o.dim0() > 0; }},
      {"after the cache was restored", [](const Observation& o) { return o.restored; }},
      {"token is not padding", [](const Observation& o) { return o.position >= o.base; }},
      {"row is padded", [](const Observation& o) { return o.padded; }},
      {"rows joined or left", [](const Observation& o) { return o.rows_changed; }},
      {"after a draft was taken back", [](const Observation& o) { return o.after_draft; }},
  };
  return all;
}

std::vector<std::string> split(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  while (true) {
    const auto end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + separator.size());
  }
}

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool has(const std::vector<std::string>& names, std::string_view name) { return std::ranges::find(names, name) != names.end(); }

/// `text` behind `prefix`, or nothing.
std::optional<std::string_view> behind(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  return text.substr(prefix.size());
}

std::optional<PlaceTest> read_predicate(std::string_view text, DType dtype) {
  if (const auto fixed = fixed_predicates().find(text); fixed != fixed_predicates().end()) return PlaceTest(fixed->second);
  if (const auto dtypes = behind(text, "dtype ")) {
    const bool holds = has(split(*dtypes, " or "), name_of(dtype));
    return [holds](const Observation&) { return holds; };
  }
  if (auto least = behind(text, "position >= ")) {
    // "(in bf16)": the smallest position was found in that dtype, which is the run's.
    const auto value = number(least->substr(0, least->find(" (in ")));
    if (!value) return std::nullopt;
    return [value](const Observation& o) { return o.position >= *value; };
  }
  if (const auto rest = behind(text, "at least ")) {
    const auto end = rest->find(' ');
    const auto value = number(rest->substr(0, end));
    const auto unit = end == std::string_view::npos ? std::string_view() : rest->substr(end);
    if (!value || (unit != " tokens before" && unit != " token before")) return std::nullopt;
    return [value](const Observation& o) { return o.position - o.base >= *value; };
  }
  if (const auto least = behind(text, "slot >= ")) {
    const auto value = number(*least);
    if (!value) return std::nullopt;
    return [value](const Observation& o) { return o.slot >= *value; };
  }
  if (const auto set = behind(text, "layer in {"); set && set->ends_with('}')) {
    const auto layers = split(set->substr(0, set->size() - 1), ", ");
    return [layers](const Observation& o) { return has(layers, std::to_string(o.layer)); };
  }
  if (const auto name = behind(text, "variant ")) {
    const std::string variant(*name);
    return [variant](const Observation& o) { return o.variant == variant; };
  }
  if (const auto names = behind(text, "tap ")) {
    const auto roles = split(*names, ", ");
    return [roles](const Observation& o) { return has(roles, o.role); };
  }
  constexpr std::string_view kCache = " cache";
  if (text.ends_with(kCache)) {
    const std::string cache(text.substr(0, text.size() - kCache.size()));
    return [cache](const Observation& o) { return o.cache == cache; };
  }
  return std::nullopt;
}

}  // namespace

Result<PlaceTest> read_condition(const std::string& text, DType dtype) {
  std::vector<PlaceTest> tests;
  for (const auto& predicate : split(text, " and ")) {
    auto test = read_predicate(predicate, dtype);
    if (!test) return fail("verdict-invalid", fmt::format("'{}' of the condition '{}' is no predicate of places", predicate, text));
    tests.push_back(*std::move(test));
  }
  return PlaceTest([tests](const Observation& o) { return std::ranges::all_of(tests, [&](const PlaceTest& test) { return test(o); }); });
}

}  // namespace culprit
