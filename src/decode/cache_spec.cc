#include "decode/cache_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/text.h"

namespace culprit {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"concat", "padded", "rotating", "sink_window", "quantized"};
constexpr std::int64_t kMost = std::int64_t{1} << 40;  // tokens

struct Parameter {
  std::string_view name;
  std::int64_t CacheSpec::*member;
  std::int64_t least;
  bool required;
  std::span<const std::int64_t> choices = {};  // empty: any from `least` on
};
constexpr std::int64_t kBits[] = {2, 4, 8};        // as many as divide a word of 32 without a rest
constexpr std::int64_t kGroups[] = {32, 64, 128};  // channels
constexpr Parameter kRotating[] = {{"size", &CacheSpec::size, 1, true}, {"keep", &CacheSpec::keep, 0, false}};
constexpr Parameter kSinkWindow[] = {{"sink", &CacheSpec::sink, 0, true}, {"window", &CacheSpec::window, 1, true}};
constexpr Parameter kQuantized[] = {{"bits", &CacheSpec::bits, 2, true, kBits}, {"group", &CacheSpec::group, 32, true, kGroups}};

std::span<const Parameter> parameters_of(CacheKind kind) {
  if (kind == CacheKind::rotating) return kRotating;
  if (kind == CacheKind::sink_window) return kSinkWindow;
  if (kind == CacheKind::quantized) return kQuantized;
  return {};
}

void append_range(std::vector<std::int64_t>& numbers, std::int64_t begin, std::int64_t end) {
  for (auto i = begin; i < end; ++i) numbers.push_back(i);
}

/// Drops `count` numbers behind the first `keep`.
void drop_oldest(std::vector<std::int64_t>& numbers, std::int64_t keep, std::int64_t count) {
  if (count > 0) numbers.erase(numbers.begin() + keep, numbers.begin() + keep + count);
}

}  // namespace

std::span<const std::string_view> cache_kind_names() { return kNames; }

Result<CacheSpec> CacheSpec::parse(std::string_view text) {
  const auto colon = text.find(':');
  const auto name = text.substr(0, colon);
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) {
    const auto close = nearest(name, kNames);
    return fail("plan-invalid", fmt::format("there is no cache '{}'; expected one of {}{}", name, fmt::join(kNames, ", "),
                                            close.empty() ? "" : fmt::format("; did you mean {}?", close)));
  }
  CacheSpec spec;
  spec.kind = static_cast<CacheKind>(found - kNames.begin());
  const auto parameters = parameters_of(spec.kind);
  std::vector<std::string_view> given;
  auto rest = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const auto part = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    const auto equals = part.find('=');
    const auto key = part.substr(0, equals);
    const auto parameter = std::ranges::find(parameters, key, &Parameter::name);
    if (equals == std::string_view::npos || parameter == parameters.end())
      return fail("plan-invalid", fmt::format("cache {}: '{}' is no parameter of it", name, part));
    if (std::ranges::find(given, key) != given.end()) return fail("plan-invalid", fmt::format("cache {}: {} is given twice", name, key));
    given.push_back(key);
    const auto digits = part.substr(equals + 1);
    auto& value = spec.*(parameter->member);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < parameter->least || value > kMost)
      return fail("plan-invalid", fmt::format("cache {}: expected {} >= {}, got '{}'", name, key, parameter->least, digits));
    if (const auto choices = parameter->choices; !choices.empty() && std::ranges::find(choices, value) == choices.end())
      return fail("plan-invalid", fmt::format("cache {}: expected {} to be one of {}, got {}", name, key, fmt::join(choices, ", "), value));
  }
  for (const auto& parameter : parameters)
    if (parameter.required && std::ranges::find(given, parameter.name) == given.end())
      return fail("plan-invalid", fmt::format("cache {}: {} is missing", name, parameter.name));
  if (spec.kind == CacheKind::rotating && spec.keep >= spec.size)
    return fail("plan-invalid", fmt::format("cache rotating: expected keep < size, got keep {} and size {}", spec.keep, spec.size));
  return spec;
}

std::string CacheSpec::text() const {
  std::string text(kNames[static_cast<std::size_t>(kind)]);
  char separator = ':';
  for (const auto& parameter : parameters_of(kind)) {
    text += fmt::format("{}{}={}", separator, parameter.name, this->*(parameter.member));
    separator = ',';
  }
  return text;
}

void CacheContent::feed(std::int64_t tokens) {
  read_ = held_;
  if (spec_.kind == CacheKind::rotating && !read_.empty()) {
    const auto room = spec_.size - 1;  // for the newest token
    drop_oldest(read_, spec_.keep, static_cast<std::int64_t>(read_.size()) - room);
  }
  append_range(read_, next_, next_ + tokens);
  next_ += tokens;
  held_ = read_;
  if (spec_.kind == CacheKind::sink_window)
    drop_oldest(held_, spec_.sink, static_cast<std::int64_t>(held_.size()) - spec_.sink - spec_.window);
}

Result<void> CacheContent::take_back(std::int64_t tokens) {
  if (tokens == 0) return {};
  const auto count = static_cast<std::int64_t>(held_.size());
  const bool at_end = tokens <= count && held_[static_cast<std::size_t>(count - tokens)] == next_ - tokens;
  const bool whole = spec_.kind != CacheKind::rotating || count == next_;
  if (!at_end || !whole)
    return fail("not-supported", fmt::format("the cache {} has dropped tokens, so it cannot take {} back", spec_.text(), tokens));
  held_.resize(static_cast<std::size_t>(count - tokens));
  read_ = held_;
  next_ -= tokens;
  return {};
}

}  // namespace culprit
