#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "arm/arms.h"
#include "base/error_ids.h"
#include "base/text.h"
#include "cli/context.h"
#include "cli/fault_page.h"
#include "cli/verbs.h"
#include "fault/fault.h"
#include "locate/known_defects.h"

namespace culprit::cli {
namespace {

std::string about(const ErrorId& error) {
  return fmt::format("{}: an error. {}. Exit code {}.\n", error.id, error.description, error.exit_code);
}

std::string about(const FaultEntry& fault) { return fault_section(fault); }

std::string about(const ArmEntry& arm) { return fmt::format("{}: an arm of find: {}\n", arm.name, arm.what); }

std::string about(const KnownDefect& defect) { return known_defect_text(defect); }

/// The decisions that a verdict document holds.
Result<std::string> decisions_of(const std::string& file) {
  CULPRIT_TRY(const auto verdict, read_json_file(file));
  if (!verdict.is_object() || verdict.value("schema", "") != "culprit-verdict" || !verdict.contains("decisions") ||
      !verdict.at("decisions").is_array())
    return fail("verdict-invalid", "it holds no decisions; expected a document of culprit find --json", file);
  std::string text;
  for (const auto& decision : verdict.at("decisions"))
    text += decision.is_string() ? decision.get<std::string>() + "\n" : decision.dump() + "\n";
  return text;
}

Result<int> explain(Context& context, const Arguments& arguments) {
  const auto& word = arguments.positionals()[0];
  std::vector<std::string_view> words;
  // Everything that has a name, in one pass: what is asked for, or what it may have been meant to be.
  const auto look_through = [&](const auto& entries, auto name) {
    for (const auto& entry : entries) {
      words.push_back(entry.*name);
      if (entry.*name != word) continue;
      context.out(about(entry));
      return true;
    }
    return false;
  };
  const auto arms = arm_entries();
  if (look_through(error_ids(), &ErrorId::id) || look_through(fault_catalogue(), &FaultEntry::id) || look_through(arms, &ArmEntry::name) ||
      look_through(known_defects(), &KnownDefect::reference))
    return 0;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(word, ignored)) {
    CULPRIT_TRY(const auto text, decisions_of(word));
    context.out(text);
    return 0;
  }
  const auto close = nearest(word, words);
  return fail("usage", fmt::format("'{}' is no error id, fault, arm, known defect or verdict file{}", word,
                                   close.empty() ? "" : fmt::format("; did you mean {}?", close)));
}

}  // namespace

const Verb kExplain = {.name = "explain",
                       .summary = "say what a word of culprit's output means, or why a verdict's experiments were chosen",
                       .details =
                           "A word is an error id, a fault (F01), an arm of find, or a known upstream defect (mlx 2791, quoted); a file is "
                           "a verdict of culprit "
                           "find --json.",
                       .options = {},
                       .positionals = {{.name = "WORD_OR_FILE"}},
                       .run = explain};

}  // namespace culprit::cli
