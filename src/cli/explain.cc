#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "arm/arms.h"
#include "base/error_ids.h"
#include "base/text.h"
#include "cli/context.h"
#include "cli/fault_page.h"
#include "cli/plan_options.h"
#include "cli/verbs.h"
#include "fault/fault.h"
#include "locate/derivation.h"
#include "locate/known_defects.h"

namespace culprit::cli {
namespace {

std::string about(const ErrorId& error) {
  return fmt::format("{}: an error. {}. Exit code {}.\n", error.id, error.description, error.exit_code);
}

std::string about(const FaultEntry& fault) { return fault_section(fault); }

std::string about(const ArmEntry& arm) { return fmt::format("{}: an arm of find: {}\n", arm.name, arm.what); }

std::string about(const KnownDefect& defect) { return known_defect_text(defect); }

/// "cache=padded,variant sdpa=composed"
Result<std::map<std::string, std::string>> wanted_factors(const std::string& text) {
  std::map<std::string, std::string> wanted;
  for (const auto& part : split(text, ',')) {
    const auto equals = part.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail("option-value", fmt::format("--runs is '{}', expected FACTOR=VALUE,..", text));
    wanted[part.substr(0, equals)] = part.substr(equals + 1);
  }
  return wanted;
}

Result<std::string> runs_with(const Ledger& ledger, const std::string& asked) {
  CULPRIT_TRY(const auto wanted, wanted_factors(asked));
  CULPRIT_TRY(const auto found, ledger.having(wanted));
  std::string text;
  for (const int id : found) {
    CULPRIT_TRY(const auto* run, ledger.entry(id));
    text += fmt::format("{:>3} '{}': {}\n", id, run->plan.name, run->purpose);
  }
  return text;
}

Result<std::string> contrast_of(const Ledger& ledger, const std::string& asked) {
  CULPRIT_TRY(const auto runs, parse_numbers("contrast", asked));
  if (runs.size() != 2) return fail("option-value", fmt::format("--contrast is '{}', expected two runs: 2,34", asked));
  CULPRIT_TRY(const auto factor, ledger.contrast(runs[0], runs[1]));
  CULPRIT_TRY(const auto* expected, ledger.entry(runs[0]));
  CULPRIT_TRY(const auto* actual, ledger.entry(runs[1]));
  return fmt::format("runs {} and {} differ in {} only: {} and {}\n", runs[0], runs[1], factor, factors(*expected)[factor],
                     factors(*actual)[factor]);
}

/// What a verdict document says of itself; exit code 1 when a conclusion does not follow from its runs.
Result<int> explain_verdict(Context& context, const Arguments& arguments, const std::string& file) {
  CULPRIT_TRY(const auto document, read_json_file(file));
  const auto reading = read_verdict(document);
  if (!reading) return fail(reading.error().id, reading.error().message, file);
  const auto asked_runs = arguments.value("runs"), asked_contrast = arguments.value("contrast");
  if (asked_runs) {
    CULPRIT_TRY(const auto text, runs_with(reading->ledger, *asked_runs));
    context.out(text);
  }
  if (asked_contrast) {
    CULPRIT_TRY(const auto text, contrast_of(reading->ledger, *asked_contrast));
    context.out(text);
  }
  if (!asked_runs && !asked_contrast) context.out(to_text(*reading));
  return std::ranges::all_of(reading->derivations, &Derivation::holds) ? 0 : 1;
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
    return explain_verdict(context, arguments, word);
  }
  const auto close = nearest(word, words);
  return fail("usage", fmt::format("'{}' is no error id, fault, arm, known defect or verdict file{}", word,
                                   close.empty() ? "" : fmt::format("; did you mean {}?", close)));
}

}  // namespace

const Verb kExplain = {
    .name = "explain",
    .summary = "say what a word of culprit's output means, or derive a verdict from its runs again",
    .details =
        "A word is an error id, a fault (F01), an arm of find, or a known upstream defect (mlx 2791, quoted). A file is a verdict "
        "of culprit find --json: each conclusion is derived from its runs again, and refused where they were not made, differ "
        "in more than one factor, or do not carry it; then the exit code is 1.",
    .options = {{.name = "runs",
                 .placeholder = "FACTOR=VALUE,..",
                 .help = "of a verdict: the runs that have all of these: cache=padded,evaluation=lazy"},
                {.name = "contrast", .placeholder = "RUN,RUN", .help = "of a verdict: the one factor in which two runs differ"}},
    .positionals = {{.name = "WORD_OR_FILE"}},
    .run = explain};

}  // namespace culprit::cli
