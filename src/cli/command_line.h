#pragma once
// The command line as a table: every verb states its options and arguments, and this parses, documents and completes them.
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace culprit::cli {

struct OptionEntry {
  std::string_view name;         // without dashes: "engine"
  std::string_view placeholder;  // "SPEC"; empty for a flag
  std::string_view help;
  bool repeated = false;
  bool required = false;
};

struct PositionalEntry {
  std::string_view name;  // "MODEL"
  bool required = true;
  bool repeated = false;  // only the last may be
};

/// Options and arguments as given, checked against a verb's entry.
class Arguments {
 public:
  [[nodiscard]] bool has(std::string_view option) const;
  /// The last value given, or nothing.
  [[nodiscard]] std::optional<std::string> value(std::string_view option) const;
  [[nodiscard]] std::string value_or(std::string_view option, std::string_view otherwise) const;
  [[nodiscard]] const std::vector<std::string>& values(std::string_view option) const;
  [[nodiscard]] const std::vector<std::string>& positionals() const { return positionals_; }
  /// An option that is a whole number. Error ids: option-value.
  [[nodiscard]] Result<std::int64_t> integer(std::string_view option, std::int64_t otherwise, std::int64_t min, std::int64_t max) const;

  void add(std::string_view option, std::string value) { options_[std::string(option)].push_back(std::move(value)); }
  void add_positional(std::string value) { positionals_.push_back(std::move(value)); }

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> options_;
  std::vector<std::string> positionals_;
};

class Context;

/// One verb, "find" or "engine add".
struct Verb {
  std::string_view name;
  std::string_view summary;  // one line
  std::string_view details;  // paragraphs, may be empty
  std::vector<OptionEntry> options;
  std::vector<PositionalEntry> positionals;
  /// The exit code, or an error that becomes one line on stderr and its id's exit code.
  Result<int> (*run)(Context&, const Arguments&);
  bool hidden = false;
};

/// The options that every verb takes.
[[nodiscard]] std::span<const OptionEntry> global_options();

struct Parsed {
  const Verb* verb = nullptr;
  Arguments arguments;  // global options too
};

/// `words` are the arguments after the program's name. --help anywhere, --version and no arguments at all lead to the verbs `help` and
/// `version`. Error ids: usage, verb-unknown, option-unknown, option-value; each with the nearest name.
[[nodiscard]] Result<Parsed> parse(std::span<const Verb* const> verbs, const std::vector<std::string>& words);

/// The verb of that name, or nullptr.
[[nodiscard]] const Verb* find_verb(std::span<const Verb* const> verbs, std::string_view name);

}  // namespace culprit::cli
