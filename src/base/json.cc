#include "base/json.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/file.h"

namespace culprit {
namespace {
int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// "0x1.8p+1" without its sign. By hand because strtod follows the locale and from_chars for double is missing from older libc++.
/// None when the text is not of that form or is not exactly a double.
std::optional<double> parse_hex_magnitude(std::string_view text) {
  if (!text.starts_with("0x")) return std::nullopt;
  text.remove_prefix(2);
  std::uint64_t digits = 0;
  int digit_count = 0;
  int scale = 0;
  bool point = false;
  for (; !text.empty() && text[0] != 'p'; text.remove_prefix(1)) {
    if (text[0] == '.' && !point) {
      point = true;
      continue;
    }
    const int digit = hex_digit(text[0]);
    if (digit < 0 || digits >> 60 != 0) return std::nullopt;
    digits = digits * 16 + static_cast<std::uint64_t>(digit);
    if (point) scale -= 4;
    ++digit_count;
  }
  if (digit_count == 0 || text.size() < 2) return std::nullopt;
  text.remove_prefix(1);  // the p
  const bool negative = text[0] == '-';
  if (text[0] == '-' || text[0] == '+') text.remove_prefix(1);
  if (text.empty() || text.size() > 5) return std::nullopt;
  int exponent = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    exponent = exponent * 10 + (c - '0');
  }
  const int power = (negative ? -exponent : exponent) + scale;
  const double mantissa = static_cast<double>(digits);
  const double value = std::ldexp(mantissa, power);
  const bool exact = digits <= (std::uint64_t{1} << 53) && std::isfinite(value) && std::ldexp(value, -power) == mantissa;
  return exact ? std::optional(value) : std::nullopt;
}
}  // namespace

Result<Json> parse_json(std::string_view text, std::string where) {
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::parse_error& error) {
    return fail("json-invalid", fmt::format("not JSON at byte {} of {}", error.byte, text.size()), std::move(where));
  } catch (const nlohmann::json::exception& error) {  // a number out of range
    return fail("json-invalid", error.what(), std::move(where));
  }
}

Result<Json> read_json_file(const std::filesystem::path& path) {
  CULPRIT_TRY(const auto text, read_file(path));
  return parse_json(text, path.string());
}

Json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

std::string hex_float(double value) {
  if (!std::isfinite(value)) return json_number(value).get<std::string>();
  return fmt::format("{:a}", value);
}

Result<double> number_from(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return fail("json-invalid", fmt::format("expected a number, got {}", value.type_name()));
  const auto& text = value.get_ref<const std::string&>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  const bool negative = text.starts_with('-');
  const auto magnitude = std::string_view(text).substr(negative ? 1 : 0);
  const auto parsed = magnitude == "inf" ? std::optional(std::numeric_limits<double>::infinity()) : parse_hex_magnitude(magnitude);
  if (!parsed) return fail("json-invalid", fmt::format("expected a number, \"nan\", \"inf\" or an exact hex float, got \"{}\"", text));
  return negative ? -*parsed : *parsed;
}

}  // namespace culprit
