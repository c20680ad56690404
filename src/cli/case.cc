#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "cases/play.h"
#include "cli/context.h"
#include "cli/interrupt.h"
#include "cli/json_text.h"
#include "cli/places.h"
#include "cli/plan_options.h"
#include "cli/verbs.h"

namespace culprit::cli {
namespace {

Result<std::vector<Case>> all_cases(const Arguments& arguments) {
  return read_cases(arguments.value_or("cases", (source_folder() / "cases").string()));
}

std::string engine_of(const Case& a_case) { return a_case.setting.engine; }

Result<int> list(Context& context, const Arguments& arguments) {
  CULPRIT_TRY(const auto cases, all_cases(arguments));
  Json items = Json::array();
  for (const auto& a_case : cases) {
    items.push_back({{"case", a_case.name}, {"title", a_case.title}, {"published", a_case.published.where}, {"engine", engine_of(a_case)}});
    if (!context.json()) context.out(fmt::format("{:<26} {:<12} {}\n", a_case.name, engine_of(a_case), a_case.title));
  }
  if (context.json()) context.out_json(document("culprit-cases", {{"cases", std::move(items)}}));
  return 0;
}

/// Those that are named; all of them for the word all.
Result<std::vector<Case>> chosen(const std::vector<Case>& cases, const std::vector<std::string>& words) {
  std::vector<Case> out;
  for (const auto& word : words) {
    if (word == "all") {
      out.insert(out.end(), cases.begin(), cases.end());
      continue;
    }
    const auto found = std::ranges::find(cases, word, &Case::name);
    if (found != cases.end()) {
      out.push_back(*found);
      continue;
    }
    std::vector<std::string_view> names = {"all"};
    for (const auto& a_case : cases) names.push_back(a_case.name);
    const auto close = nearest(word, names);
    return fail("case-unknown", fmt::format("there is no case '{}'{}; see: culprit case list", word,
                                            close.empty() ? "" : fmt::format("; did you mean {}?", close)));
  }
  return out;
}

Result<int> run_cases(Context& context, const Arguments& arguments) {
  CULPRIT_TRY(const auto cases, all_cases(arguments));
  CULPRIT_TRY(const auto wanted, chosen(cases, arguments.positionals()));
  Json items = Json::array();
  bool all_hold = true;
  for (const auto& a_case : wanted) {
    const ScratchFolder scratch;
    if (scratch.path().empty()) return fail("file-write", "no folder for models and traces can be made");
    PlayOptions options{.engine = arguments.value_or("engine", ""), .work = scratch.path(), .progress = context.progress_sink()};
    if (a_case.setting.engine != "ref" && wanted.size() > 1) options.engine.clear();  // of a release of its own
    CULPRIT_TRY(const auto played, play(a_case, context.registry(), options));
    if (interrupted()) return fail("interrupted", "the case was interrupted");
    all_hold = all_hold && played.holds();
    if (context.json())
      items.push_back(to_json(a_case, played));
    else
      context.out(to_text(a_case, played) + "\n");
  }
  if (context.json()) context.out_json(document("culprit-cases", {{"cases", std::move(items)}}));
  return all_hold ? 0 : 1;
}

const OptionEntry kCasesOption = {.name = "cases", .placeholder = "DIR", .help = "another folder of cases"};

}  // namespace

const Verb kCaseList = {
    .name = "case list",
    .summary = "list public defects that can be run again",
    .details = "Each is a file of the folder cases: what was reported and blamed, how it is set up, and what the verdict must be.",
    .options = {kCasesOption},
    .positionals = {},
    .run = list};
const Verb kCaseRun = {
    .name = "case run",
    .summary = "set up public defects again, and hold the verdict against what was published",
    .details =
        "The exit code is 0 when every verdict is as the case says it must be, else 1. A defect of a released package is run on that "
        "release; "
        "one that no package has is planted.",
    .options = {{.name = "engine", .placeholder = "SPEC", .help = "of cases whose defect is planted: NAME@VERSION, or ref (default)"},
                kCasesOption},
    .positionals = {{.name = "NAME..", .repeated = true}},
    .run = run_cases};

}  // namespace culprit::cli
