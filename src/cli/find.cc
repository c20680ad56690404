#include "locate/find.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "arm/arms.h"
#include "cli/context.h"
#include "cli/interrupt.h"
#include "cli/plan_options.h"
#include "cli/verbs.h"
#include "report/text.h"

namespace culprit::cli {
namespace {
namespace fs = std::filesystem;

std::string fault_list() {
  std::string text;
  for (const auto& fault : fault_catalogue()) {
    std::string ops, parameters;
    for (const auto op : fault.ops) ops += fmt::format("{}{}", ops.empty() ? "" : " ", name_of(op));
    for (const auto& [name, values] : fault.parameters) parameters += fmt::format("  {}={}", name, fmt::join(values, "|"));
    text += fmt::format("{:<4} {:<12} {}{}\n", fault.id, ops, fault.title, parameters);
  }
  return text;
}

std::string arm_list() {
  std::string text;
  for (const auto& arm : arm_entries()) text += fmt::format("{:<24} {}\n", arm.name, arm.what);
  return text;
}

Result<bool> fails_on_precision(const Arguments& arguments) {
  for (const auto& what : arguments.values("fail-on"))
    if (what != "precision") return fail("option-value", fmt::format("--fail-on is '{}', expected precision", what));
  return arguments.has("fail-on");
}

/// An arm's name, or nothing.
Result<std::string> proof_arm_from(const Arguments& arguments) {
  const auto name = arguments.value_or("proof-arm", "");
  const auto entries = arm_entries();
  if (name.empty() || std::ranges::any_of(entries, [&](const ArmEntry& arm) { return arm.name == name; })) return name;
  return fail("option-value", fmt::format("--proof-arm: there is no arm '{}'; see: culprit find --list-arms", name));
}

Result<FindOptions> options_from(const Context& context, const Arguments& arguments) {
  FindOptions options;
  if (arguments.positionals().empty()) return fail("usage", "'find' wants MODEL; see: culprit help find");
  const auto spec = arguments.value("engine");
  if (!spec) return fail("usage", "'find' wants --engine SPEC; see: culprit help find");
  options.model_name = arguments.positionals()[0];
  CULPRIT_TRY(options.dtype, parse_dtype(arguments.value_or("dtype", "f32")));
  CULPRIT_TRY(options.cache, CacheSpec::parse(arguments.value_or("cache", "concat")));
  CULPRIT_TRY(options.faults, faults_from(arguments));
  CULPRIT_TRY(options.prompts, prompts_from(arguments));
  CULPRIT_TRY(options.proof_arm, proof_arm_from(arguments));
  options.suspects = arguments.value_or("suspect", "");
  CULPRIT_TRY(const auto seed, arguments.integer("seed", 1, 0, INT64_MAX));
  options.seed = static_cast<std::uint64_t>(seed);
  if (arguments.has("timeout")) {
    CULPRIT_TRY(const auto limit, arguments.integer("timeout", 0, 1, 86400));
    options.timeout = std::chrono::seconds(limit);
  }
  CULPRIT_TRY(options.engine, context.registry().engine(*spec));
  CULPRIT_TRY(const auto model, context.registry().model(options.model_name));
  options.model = fs::absolute(model);
  options.progress = context.progress_sink();
  return options;
}

/// The folder for traces that are kept. It is made by the first run only, so that bad input leaves nothing behind.
Result<fs::path> kept_folder(const std::string& asked) {
  const auto folder = fs::absolute(asked);
  std::error_code ignored;
  if (fs::exists(folder, ignored) && !(fs::is_directory(folder, ignored) && fs::is_empty(folder, ignored)))
    return fail("option-value", fmt::format("--keep: '{}' is there and no empty folder", asked));
  return folder;
}

Result<int> run_find(Context& context, const Arguments& arguments) {
  if (arguments.has("list-faults") || arguments.has("list-arms")) {
    context.out(arguments.has("list-faults") ? fault_list() : arm_list());
    return 0;
  }
  CULPRIT_TRY(const bool fail_on_precision, fails_on_precision(arguments));
  CULPRIT_TRY(auto options, options_from(context, arguments));
  const ScratchFolder scratch;
  options.work = scratch.path();
  if (const auto keep = arguments.value("keep")) {
    CULPRIT_TRY(options.work, kept_folder(*keep));
  }
  if (options.work.empty()) return fail("file-write", "no folder for traces can be made");
  CULPRIT_TRY(const auto verdict, find(options));
  if (interrupted()) return fail("interrupted", "the search was interrupted");
  if (context.json())
    context.out_json(to_json(verdict));
  else
    context.out(to_text(verdict, {.colour = context.colour(), .explain = arguments.has("explain")}));
  return verdict.exit_code(fail_on_precision);
}

}  // namespace

const Verb kFind = {
    .name = "find",
    .summary = "find the operation that makes an engine decode a model wrongly, and prove it",
    .details =
        "Runs a small set of cheap arms, audits every op of each in float64, explains what is outside its bound, and proves it by "
        "patching. No hint "
        "about the op is needed. The exit code is 1 when something is wrong, 0 when nothing is, 3 when that cannot be said, 4 when the "
        "engine failed; what was found before it failed stands.",
    .options = {{.name = "engine", .placeholder = "SPEC", .help = "NAME@VERSION of an installed engine, or ref; needed"},
                {.name = "dtype", .placeholder = "DTYPE", .help = "f32, f16 or bf16; f32 by default"},
                {.name = "cache",
                 .placeholder = "KIND",
                 .help = "of the arms that are not about another one: concat (default), padded, rotating:size=64, "
                         "sink_window:sink=1,window=63, quantized:bits=8,group=32"},
                {.name = "fault",
                 .placeholder = "SPEC",
                 .help = "plant a fault into the engine, to see it found: F01, F01:content=zero",
                 .repeated = true},
                {.name = "prompt",
                 .placeholder = "IDS",
                 .help = "token ids 1,2,3 or a file of them; random ones from the seed by default",
                 .repeated = true},
                {.name = "seed", .placeholder = "N", .help = "of the random prompts; 1 by default"},
                {.name = "proof-arm",
                 .placeholder = "ARM",
                 .help = "prove in this arm, and measure the damage there; by default where a broken relation is furthest apart"},
                {.name = "suspect",
                 .placeholder = "NAMES",
                 .help = "parts that you suspect, each tested alone, cleared or charged: cache,sdpa,quantized_matmul; all: every op"},
                {.name = "timeout", .placeholder = "SECONDS", .help = "for loading, and for each run; 180 by default"},
                {.name = "fail-on", .placeholder = "precision", .help = "exit code 1 also for precision that is lower than declared"},
                {.name = "explain", .placeholder = "", .help = "also say why each experiment was chosen"},
                {.name = "keep", .placeholder = "DIR", .help = "keep traces and logs there"},
                {.name = "list-faults", .placeholder = "", .help = "list the fault catalogue and end"},
                {.name = "list-arms", .placeholder = "", .help = "list the arms and end"}},
    .positionals = {{.name = "MODEL", .required = false}},
    .run = run_find};

}  // namespace culprit::cli
