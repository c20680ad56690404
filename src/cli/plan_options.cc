#include "cli/plan_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "base/file.h"
#include "base/text.h"

namespace culprit::cli {
namespace {

constexpr std::string_view kBetween = ", \t\r\n";

std::optional<int> number_from(std::string_view word) {
  int number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return number;
}

Result<std::vector<int>> tokens_of(std::string_view text, const std::string& where) {
  std::vector<int> tokens;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kBetween), text.size()));
    if (text.empty()) break;
    const auto word = text.substr(0, text.find_first_of(kBetween));
    const auto token = number_from(word);
    if (!token || *token < 0)
      return fail("tokens-invalid", fmt::format("token {}: '{:.40}' is not a token id", tokens.size(), word), where);
    tokens.push_back(*token);
    text.remove_prefix(word.size());
  }
  if (tokens.empty()) return fail("tokens-invalid", "there are no token ids", where);
  return tokens;
}

}  // namespace

Result<std::vector<int>> parse_tokens(const std::string& text) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(text, ignored)) {
    CULPRIT_TRY(const auto content, read_file(text));
    return tokens_of(content, text);
  }
  return tokens_of(text, "--prompt");
}

Result<std::vector<std::vector<int>>> prompts_from(const Arguments& arguments) {
  std::vector<std::vector<int>> prompts;
  for (const auto& text : arguments.values("prompt")) {
    CULPRIT_TRY(auto tokens, parse_tokens(text));
    prompts.push_back(std::move(tokens));
  }
  return prompts;
}

Result<std::vector<FaultSpec>> faults_from(const Arguments& arguments) {
  std::vector<FaultSpec> faults;
  for (const auto& text : arguments.values("fault")) {
    CULPRIT_TRY(auto fault, FaultSpec::parse(text));
    faults.push_back(std::move(fault));
  }
  return faults;
}

Result<std::vector<int>> parse_numbers(std::string_view option, const std::string& text) {
  std::vector<int> numbers;
  for (const auto& word : split(text, ',', text.size() + 1)) {
    const auto number = number_from(word);
    if (!number || *number < 0) return fail("option-value", fmt::format("--{}: '{}' is not a whole number of at least 0", option, word));
    numbers.push_back(*number);
  }
  return numbers;
}

Result<std::vector<std::vector<int>>> parse_number_lists(std::string_view option, const std::string& text) {
  std::vector<std::vector<int>> lists;
  for (const auto& part : split(text, '/', text.size() + 1)) {
    CULPRIT_TRY(auto numbers, parse_numbers(option, part));
    lists.push_back(std::move(numbers));
  }
  return lists;
}

Result<Intervention> parse_intervention(const std::string& text) {
  const auto form =
      fail("option-value", fmt::format("--intervene is '{}', expected exact:TAP, variant:TAP:NAME, replace:TAP:FILE or keep:TAP, "
                                       "with @STEP,STEP at its end for certain steps only",
                                       text));
  Intervention intervention;
  auto rest = text;
  // Only digits and commas after the last @ are steps: a file may have one in its name.
  if (const auto at = text.rfind('@'); at != std::string::npos && text.find_first_not_of("0123456789,", at + 1) == std::string::npos) {
    CULPRIT_TRY(intervention.steps, parse_numbers("intervene", text.substr(at + 1)));
    rest = text.substr(0, at);
  }
  const auto parts = split(rest, ':', 3);
  if (parts.size() < 2 || parts[1].empty()) return form;
  intervention.tap = parts[1];
  if (parts[0] == "exact" && parts.size() == 2) {
    intervention.kind = Intervention::Kind::exact;
  } else if (parts[0] == "variant" && parts.size() == 3) {
    intervention.kind = Intervention::Kind::variant;
    intervention.variant = parts[2];
  } else if (parts[0] == "replace" && parts.size() == 3) {
    intervention.kind = Intervention::Kind::replace;
    intervention.file = std::filesystem::absolute(parts[2]);
  } else if (parts[0] == "keep" && parts.size() == 2) {
    intervention.kind = Intervention::Kind::keep;
  } else {
    return form;
  }
  return intervention;
}

Result<std::vector<int>> parse_chunks(const std::string& text, std::size_t length) {
  if (text == "incremental") return std::vector<int>(length, 1);
  if (text == "prefill") return std::vector<int>{static_cast<int>(length)};
  return parse_numbers("chunks", text);
}

Result<void> add_variant(const std::string& text, std::map<std::string, std::string>& variants) {
  const auto parts = split(text, '=', 2);
  if (parts.size() != 2 || parts[0].empty() || parts[1].empty())
    return fail("option-value", fmt::format("--variant is '{}', expected OP=NAME, such as rope=composed", text));
  variants[parts[0]] = parts[1];
  return {};
}

}  // namespace culprit::cli
