#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>

#include "cli/context.h"
#include "cli/interrupt.h"
#include "cli/json_text.h"
#include "cli/plan_options.h"
#include "cli/verbs.h"
#include "decode/model.h"
#include "engine/driver_process.h"

namespace culprit::cli {
namespace {
namespace fs = std::filesystem;

constexpr std::chrono::seconds kHelloLimit(60);

struct Asked {
  LoadPlan load;
  RunPlan run;
  std::chrono::seconds limit{180};
};

/// One of two or more words of an enum, read as its JSON form is.
template <class Plan, class Read>
Result<Plan> with_word(const Plan& plan, const char* field, const std::string& word, Read&& read) {
  auto json = to_json(plan);
  json[field] = word;
  return read(json);
}

Result<Asked> asked_from(const Arguments& arguments, const fs::path& model) {
  Asked asked;
  asked.load.model = fs::absolute(model);
  CULPRIT_TRY(asked.load.dtype, parse_dtype(arguments.value_or("dtype", "f32")));
  CULPRIT_TRY(asked.load, with_word(asked.load, "weights", arguments.value_or("weights", "culprit"), load_plan_from_json));

  auto& run = asked.run;
  run.name = "run";
  CULPRIT_TRY(run.sequences, prompts_from(arguments));
  if (const auto ids = arguments.value("sequence-ids")) {
    CULPRIT_TRY(run.sequence_ids, parse_numbers("sequence-ids", *ids));
  }
  CULPRIT_TRY(run.position_base, arguments.integer("base", 0, 0, std::int64_t{1} << 40));
  CULPRIT_TRY(run.chunks, parse_chunks(arguments.value_or("chunks", "incremental"), static_cast<std::size_t>(length_of(run))));
  run.reprefill = arguments.has("reprefill");
  if (const auto rows = arguments.value("active")) {
    CULPRIT_TRY(run.active, parse_number_lists("active", *rows));
  }
  run.cache = arguments.value_or("cache", run.cache);
  run.poison = arguments.has("poison");
  if (const auto steps = arguments.value("restore-after")) {
    CULPRIT_TRY(run.restore_after, parse_numbers("restore-after", *steps));
  }
  for (const auto& text : arguments.values("variant")) CULPRIT_CHECK(add_variant(text, run.variants));
  if (arguments.has("capture")) run.capture = arguments.values("capture");
  if (const auto steps = arguments.value("steps")) {
    CULPRIT_TRY(run.capture_steps, parse_numbers("steps", *steps));
  }
  run.hash_only = arguments.has("hash-only");
  for (const auto& text : arguments.values("intervene")) {
    CULPRIT_TRY(auto intervention, parse_intervention(text));
    run.interventions.push_back(std::move(intervention));
  }
  CULPRIT_TRY(run.faults, faults_from(arguments));
  run.sync_taps = arguments.values("sync-at");
  CULPRIT_TRY(run, with_word(run, "sync", arguments.value_or("sync", "lazy"), run_plan_from_json));
  CULPRIT_CHECK(validate(run));
  CULPRIT_TRY(const auto limit, arguments.integer("timeout", asked.limit.count(), 1, 86400));
  asked.limit = std::chrono::seconds(limit);
  return asked;
}

std::string to_text(const Json& result, bool kept) {
  std::string text = fmt::format("{} steps in {:.2f} s\n", result.value("steps", 0), result.value("seconds", 0.0));
  if (result.contains("argmax"))
    for (std::size_t step = 0; step < result.at("argmax").size(); ++step)
      text += fmt::format("step {}: argmax {}\n", step, result.at("argmax")[step].dump());
  if (kept) text += fmt::format("trace: {}\n", result.value("trace", ""));
  return text;
}

Result<int> run(Context& context, const Arguments& arguments) {
  CULPRIT_TRY(const auto engine, context.registry().engine(*arguments.value("engine")));
  CULPRIT_TRY(const auto path, context.registry().model(arguments.positionals()[0]));
  CULPRIT_TRY(const auto asked, asked_from(arguments, path));
  CULPRIT_TRY(const auto model, Model::open(path));
  CULPRIT_CHECK(validate_tokens(asked.run, model.facts().vocabulary));

  const ScratchFolder scratch;
  auto trace = scratch.path() / "trace";
  if (const auto out = arguments.value("out")) {
    trace = fs::absolute(*out);
    std::error_code ignored;
    if (fs::exists(trace, ignored) && !fs::is_empty(trace, ignored))
      return fail("option-value", fmt::format("--out: '{}' is there and not empty", *out));
  }
  CULPRIT_TRY(const auto process, DriverProcess::start({engine.argv, scratch.path() / "driver"}));
  CULPRIT_CHECK(process->request("hello", {{"protocol", 1}}, kHelloLimit));
  context.progress(fmt::format("loading {} into {}", path.filename().string(), engine.spec()));
  CULPRIT_CHECK(process->request("load", {{"plan", to_json(asked.load)}}, asked.limit));
  context.progress(
      fmt::format("running {} rows of {} tokens in {} steps", asked.run.sequences.size(), length_of(asked.run), steps_of(asked.run)));
  CULPRIT_TRY(auto result, process->request("run", {{"plan", to_json(asked.run)}, {"trace", trace.string()}}, asked.limit));
  result.erase("id");
  result.erase("event");
  const bool kept = arguments.has("out");
  if (!kept) result.erase("trace");
  if (context.json())
    context.out_json(
        document("culprit-run",
                 {{"engine", engine.spec()}, {"load", to_json(asked.load)}, {"plan", to_json(asked.run)}, {"result", std::move(result)}}));
  else
    context.out(to_text(result, kept));
  return 0;
}

}  // namespace

const Verb kRun = {
    .name = "run",
    .summary = "make one run of one engine, as told, and record it",
    .details =
        "The rows of a batch are --prompt options, one a row, padded on the left to the longest. A fault is planted as find does it; an "
        "intervention makes one op right (exact), runs it in another variant, replaces its output by a recorded tensor, or hands it back "
        "as "
        "it is (keep), which is the control of the others.",
    .options =
        {{.name = "engine", .placeholder = "SPEC", .help = "NAME@VERSION, or ref", .required = true},
         {.name = "prompt",
          .placeholder = "IDS",
          .help = "token ids 1,2,3 or a file of them; a row each",
          .repeated = true,
          .required = true},
         {.name = "dtype", .placeholder = "DTYPE", .help = "f32, f16 or bf16; f32 by default"},
         {.name = "weights", .placeholder = "WHO", .help = "whose loader reads the checkpoint: culprit (default) or engine"},
         {.name = "chunks",
          .placeholder = "N,N,..",
          .help = "tokens of each step, or incremental (one each, the default), or prefill (all at once)"},
         {.name = "reprefill", .placeholder = "", .help = "each step feeds all tokens so far into a fresh cache"},
         {.name = "active",
          .placeholder = "N,N/N/..",
          .help = "rows of each step, steps apart by /: 0,1/2/0,1,2 has row 2 join; all by default"},
         {.name = "base", .placeholder = "N", .help = "position of the first token; 0 by default"},
         {.name = "sequence-ids", .placeholder = "N,N,..", .help = "which logical sequence each row is; 0,1,.. by default"},
         {.name = "cache",
          .placeholder = "KIND",
          .help = "concat (default), padded, rotating:size=N,keep=N, sink_window:sink=N,window=N or quantized:bits=N,group=N"},
         {.name = "restore-after",
          .placeholder = "N,N,..",
          .help = "steps after which the cache is copied to the host, dropped, and made again from the copy"},
         {.name = "poison", .placeholder = "", .help = "spare slots of the cache hold NaN"},
         {.name = "variant",
          .placeholder = "OP=NAME",
          .help = "how an op is computed: rope=composed, rope.rank=3, linear=quantized",
          .repeated = true},
         {.name = "fault", .placeholder = "SPEC", .help = "a fault to plant: F01, F05:tap=*.q_rope", .repeated = true},
         {.name = "intervene",
          .placeholder = "WHAT",
          .help = "exact:TAP, variant:TAP:NAME, replace:TAP:FILE or keep:TAP, with @STEP,STEP",
          .repeated = true},
         {.name = "capture", .placeholder = "GLOB", .help = "taps to record; all by default", .repeated = true},
         {.name = "steps", .placeholder = "N,N,..", .help = "steps to record; all by default"},
         {.name = "hash-only", .placeholder = "", .help = "record hashes and statistics, no values"},
         {.name = "sync", .placeholder = "WHEN", .help = "when the engine evaluates: lazy (default), each_op, each_layer or async"},
         {.name = "sync-at", .placeholder = "GLOB", .help = "evaluate so after these taps only; GLOB@STEP for one step", .repeated = true},
         {.name = "timeout", .placeholder = "SECONDS", .help = "for loading, and for the run; 180 by default"},
         {.name = "out", .placeholder = "DIR", .help = "keep the trace there"}},
    .positionals = {{.name = "MODEL"}},
    .run = run};

}  // namespace culprit::cli
