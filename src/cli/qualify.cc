#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "cli/context.h"
#include "cli/interrupt.h"
#include "cli/verbs.h"
#include "qualify/accuracy.h"
#include "qualify/campaign.h"
#include "report/text.h"

namespace culprit::cli {
namespace {
namespace fs = std::filesystem;

constexpr std::int64_t kCasesMax = 1'000'000;

/// 0 when every answer was right, 1 when one was not.
int exit_code_of(const Campaign& campaign) {
  const bool right =
      std::ranges::all_of(campaign.cases, [](const ScoredCase& one) { return is_right(one.score.outcome) && !one.score.wrong_fault(); });
  return right ? 0 : 1;
}

std::string lines_of(const CaseRun& run, const std::string& find_line) {
  const auto& score = run.score;
  std::string text = fmt::format("case {}: {}\n  {}\n", run.drawn.name, describe(run.drawn), find_line);
  text += fmt::format("  {}{}\n", name_of(score.outcome), score.why.empty() ? "" : ": " + score.why);
  for (const auto& named : score.named) {
    const auto* how = named.proved             ? ", proved"
                      : named.explained        ? ", as planted"
                      : named.accepted.empty() ? ""
                                               : ", which predicts something else than what was planted";
    text += fmt::format("  {}: {}{}, named after {} runs\n", named.op, named.accepted.empty() ? "not explained" : named.accepted, how,
                        named.runs);
    text += fmt::format("  condition '{}'{}\n", named.condition, named.readable ? "" : ", which cannot be read");
    for (const auto& [where, fit] : {std::pair{"find's runs", named.seen}, std::pair{"other runs", named.unseen}})
      text += fmt::format("    in {}: {} of {} changed calls and {} of {} others; {} of {} changed places and {} of {} others\n", where,
                          fit.calls.bad_covered, fit.calls.bad_covered + fit.calls.bad_left_out, fit.calls.good_covered,
                          fit.calls.good_covered + fit.calls.good_left_out, fit.places.bad_covered,
                          fit.places.bad_covered + fit.places.bad_left_out, fit.places.good_covered,
                          fit.places.good_covered + fit.places.good_left_out);
  }
  return text;
}

Result<int> run_one(Context& context, const Arguments& arguments, const CampaignSettings& settings, const std::string& name) {
  CULPRIT_CHECK(draw_case(settings.seed, name));
  const auto folder = (arguments.has("out") ? settings.out : settings.work) / fmt::format("case-{}", name);
  CULPRIT_TRY(const auto run, run_case(settings.engine, settings.seed, name, folder));
  const auto model = arguments.has("out") ? (folder / "model").string() : std::string("MODEL");
  const auto line = find_command(settings.engine, run.drawn, model);
  if (context.json()) {
    auto json = to_json(run.score);
    json["find"] = line;
    if (run.verdict) json["verdict"] = to_json(*run.verdict);
    context.out_json(json);
  } else {
    context.out(lines_of(run, line));
    if (run.verdict) context.out(fmt::format("\n{}", to_text(*run.verdict, {.colour = context.colour(), .explain = false})));
  }
  return is_right(run.score.outcome) && !run.score.wrong_fault() ? 0 : 1;
}

Result<CampaignSettings> settings_from(const Context& context, const Arguments& arguments) {
  CampaignSettings settings;
  CULPRIT_TRY(settings.engine, context.registry().engine(*arguments.value("engine")));
  CULPRIT_TRY(const auto seed, arguments.integer("seed", 1, 0, INT64_MAX));
  CULPRIT_TRY(const auto count, arguments.integer("count", 100, 0, kCasesMax));
  CULPRIT_TRY(const auto nulls, arguments.integer("nulls", 0, 0, kCasesMax));
  const auto cores = std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  CULPRIT_TRY(const auto jobs, arguments.integer("jobs", cores, 1, 256));
  settings.seed = static_cast<std::uint64_t>(seed);
  settings.count = static_cast<int>(count);
  settings.nulls = static_cast<int>(nulls);
  settings.jobs = static_cast<int>(jobs);
  if (const auto out = arguments.value("out")) settings.out = fs::absolute(*out);
  settings.progress = context.progress_sink();
  if (settings.count + settings.nulls == 0) return fail("option-value", "--count and --nulls are both 0: there is nothing to run");
  return settings;
}

Result<int> run_qualify(Context& context, const Arguments& arguments) {
  CULPRIT_TRY(auto settings, settings_from(context, arguments));
  const ScratchFolder scratch;
  if (scratch.path().empty()) return fail("file-write", "no folder for traces can be made");
  settings.work = scratch.path();
  if (const auto name = arguments.value("only")) return run_one(context, arguments, settings, *name);
  CULPRIT_TRY(const auto campaign, run_campaign(settings));
  const auto page = accuracy_page(campaign);
  if (context.json())
    context.out_json(to_json(campaign));
  else
    context.out(page);
  return exit_code_of(campaign);
}

}  // namespace

const Verb kQualify = {
    .name = "qualify",
    .summary = "plant faults drawn at random, and count how many culprit finds, explains and proves",
    .details =
        "Measures culprit itself: each case is a model of random shape with a fault or two of the catalogue planted into the engine, or "
        "with "
        "none; find is run on it, and its verdict scored against what the fault really changed. Prints a page of tables, with every miss "
        "as a "
        "command that repeats it. A case follows from the seed and its name alone, and results depend on neither the number of jobs nor "
        "time. "
        "The exit code is 1 when an answer was wrong.",
    .options = {{.name = "engine", .placeholder = "SPEC", .help = "NAME@VERSION of an installed engine, or ref", .required = true},
                {.name = "count", .placeholder = "N", .help = "cases with faults; 100 by default"},
                {.name = "nulls", .placeholder = "M", .help = "cases without; none by default"},
                {.name = "seed", .placeholder = "S", .help = "of all draws; 1 by default"},
                {.name = "jobs", .placeholder = "J", .help = "cases at once; as many as there are cores by default"},
                {.name = "out",
                 .placeholder = "DIR",
                 .help =
                     "keep each result there as it comes, and go on from those that are there; with --only, keep the model and the traces"},
                {.name = "only", .placeholder = "CASE", .help = "run one case, 12 or null-3, and print its verdict"}},
    .positionals = {},
    .run = run_qualify};

}  // namespace culprit::cli
