#include "qualify/run_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "arm/arms.h"
#include "engine/live_children.h"
#include "locate/find.h"
#include "locate/session.h"
#include "qualify/dice.h"
#include "qualify/truth.h"

namespace culprit {
namespace {
namespace fs = std::filesystem;

constexpr int kOtherArms = 6, kRandomPlans = 4;  // about a quarter of the runs of a find

FindOptions options_of(const EngineInfo& engine, const QualifyCase& drawn, const fs::path& work) {
  FindOptions options;
  options.engine = engine;
  options.model = work / "model";
  options.model_name = "MODEL";
  options.dtype = drawn.dtype;
  options.cache = drawn.cache;
  options.faults = drawn.faults;
  options.prompts = drawn.prompts;
  options.seed = drawn.seed;
  options.work = work / "find";
  return options;
}

RunPlan random_plan(const QualifyCase& drawn, Dice& dice) {
  RunPlan plan;
  plan.name = "random";
  const int length = dice.between(4, 8), rows = dice.between(1, 4);
  plan.sequences = random_sequences(rows, length, drawn.facts.vocabulary, dice.next());
  if (dice.chance(30))
    for (std::size_t row = 1; row < plan.sequences.size(); ++row)
      plan.sequences[row].resize(static_cast<std::size_t>(dice.between(1, length)));
  for (int left = length; left > 0; left -= plan.chunks.back()) plan.chunks.push_back(std::min(left, dice.between(1, 3)));
  plan.position_base = dice.pick<std::int64_t>({0, 1, 17, 300, 2047, 5000});
  plan.cache = drawn.cache.text();
  if (has_row_offsets(plan)) return plan;  // rows in one dimension with their heads have no offset each
  if (dice.chance(30))
    plan.variants["rope.rank"] = "3";
  else if (dice.chance(30))
    plan.variants["rope.offset"] = "per_row";
  return plan;
}

Result<std::unique_ptr<Session>> session_for(const EngineInfo& engine, const QualifyCase& drawn, const fs::path& model,
                                             const fs::path& work, Ledger& ledger) {
  std::error_code error;
  fs::create_directories(work, error);
  if (error) return fail("file-write", error.message(), work.string());
  CULPRIT_TRY(auto session, Session::start(engine, work, ledger));
  CULPRIT_CHECK(session->load({.model = model, .dtype = drawn.dtype}));
  return session;
}

bool equal_traces(const Trace& one, const Trace& other) {
  return std::ranges::equal(one.records(), other.records(),
                            [](const TapRecord& a, const TapRecord& b) { return a.step == b.step && a.tap == b.tap && a.hash == b.hash; });
}

/// The same runs without faults: whether they hold the same bits.
Result<bool> equal_to_clean(Session& session, const std::vector<const Entry*>& planted) {
  for (const auto* entry : planted) {
    auto plan = entry->plan;
    plan.faults.clear();
    CULPRIT_TRY(const auto clean, session.run(plan, "the run without faults"));
    CULPRIT_TRY(const auto trace, Trace::open(entry->trace));
    if (!equal_traces(*clean.trace, trace)) return false;
  }
  return true;
}

Result<PlantedRuns> unseen_runs(Session& session, const Model& model, const QualifyCase& drawn) {
  PlantedRuns runs(model, drawn.dtype, drawn.faults);
  for (const auto& plan : unseen_plans(drawn)) {
    auto made = session.run(plan, "a run that find does not make");
    if (!made && made.error().id == "not-supported") continue;
    if (!made) return tl::unexpected(std::move(made).error());
    runs.add(plan, made->trace);
  }
  CULPRIT_CHECK(runs.ask_faults());
  return runs;
}

Result<CaseScore> scored(const EngineInfo& engine, const QualifyCase& drawn, const fs::path& work, const Verdict& verdict) {
  Truth truth;
  const bool has_runs = verdict.status != Status::engine_failure && verdict.status != Status::unsupported;
  if (drawn.is_null() || !has_runs) return score(drawn, verdict, truth);
  CULPRIT_TRY(const auto model, Model::open(work / "model"));
  const auto entries = exploring_entries(verdict.ledger, drawn.faults);
  PlantedRuns seen(model, drawn.dtype, drawn.faults);
  for (const auto* entry : entries) {
    CULPRIT_TRY(auto trace, Trace::open(entry->trace));
    seen.add(entry->plan, std::make_shared<const Trace>(std::move(trace)));
  }
  CULPRIT_CHECK(seen.ask_faults());
  for (const auto op : seen.broken_ops()) truth.seen[std::string(name_of(op))] = seen.places(op);
  Ledger ledger;
  CULPRIT_TRY(const auto session, session_for(engine, drawn, work / "model", work / "truth", ledger));
  if (seen.broken_ops().empty()) {
    CULPRIT_TRY(truth.equal_to_clean, equal_to_clean(*session, entries));
    CULPRIT_TRY(const auto elsewhere, unseen_runs(*session, model, drawn));
    truth.shows_elsewhere = !elsewhere.broken_ops().empty();
    return score(drawn, verdict, truth);
  }
  CULPRIT_TRY(const auto unseen, unseen_runs(*session, model, drawn));
  for (const auto op : seen.broken_ops()) truth.unseen[std::string(name_of(op))] = unseen.places(op);
  std::optional<Error> error;
  truth.same_as_planted = [&](const std::string& op, const std::string& fault) {
    const auto kind = parse_op(op);
    const auto spec = FaultSpec::parse(fault);
    if (!kind || !spec) return false;
    const auto same = seen.same_as_planted(*kind, *spec);
    if (!same) error = same.error();
    return same && *same;
  };
  auto result = score(drawn, verdict, truth);
  if (error) return tl::unexpected(*error);
  return result;
}

}  // namespace

std::vector<RunPlan> unseen_plans(const QualifyCase& drawn) {
  Dice dice(drawn.seed ^ 0x756e7365656eu);  // another stream than the weights' and the prompts'
  Fixture fixture;
  fixture.sequences = random_sequences(3, dice.between(5, 8), drawn.facts.vocabulary, dice.next());
  fixture.position_base = dice.pick<std::int64_t>({3, 77, 515, 2049});
  fixture.other_bases = {1, 300, 6001};
  fixture.cache = drawn.cache.text();
  std::vector<RunPlan> others, plans;
  for (auto& arm : make_arms(fixture))
    if (arm.needs_op.empty() && arm.plan.sync == Sync::lazy) others.push_back(std::move(arm.plan));
  for (int i = 0; i < kOtherArms && !others.empty(); ++i) {
    const auto chosen = others.begin() + static_cast<std::ptrdiff_t>(dice.below(others.size()));
    plans.push_back(std::move(*chosen));
    others.erase(chosen);
  }
  for (int i = 0; i < kRandomPlans; ++i) plans.push_back(random_plan(drawn, dice));
  for (auto& plan : plans) plan.faults = drawn.faults;
  std::erase_if(plans, [](const RunPlan& plan) { return !validate(plan); });
  return plans;
}

Result<CaseRun> run_case(const EngineInfo& engine, const QualifyCase& drawn, const fs::path& work) {
  CaseRun run;
  run.drawn = drawn;
  CULPRIT_CHECK(write_case_model(drawn, work / "model"));
  auto verdict = find(options_of(engine, drawn, work));
  if (children_ended()) return fail("interrupted", "the campaign was interrupted");
  if (!verdict) {
    run.score = score(drawn, verdict.error());
    return run;
  }
  run.verdict = *std::move(verdict);
  run.verdict->reproduce = find_command(engine, drawn, "MODEL");
  auto result = scored(engine, drawn, work, *run.verdict);
  if (children_ended()) return fail("interrupted", "the campaign was interrupted");
  run.score = result ? *std::move(result) : score(drawn, result.error());
  return run;
}

Result<CaseRun> run_case(const EngineInfo& engine, std::uint64_t campaign_seed, const std::string& name, const fs::path& work) {
  constexpr int kAttempts = 20;
  for (int attempt = 0;; ++attempt) {
    CULPRIT_TRY(const auto drawn, draw_case(campaign_seed, name, attempt));
    std::error_code ignored;
    fs::remove_all(work, ignored);
    CULPRIT_TRY(auto run, run_case(engine, drawn, work));
    run.score.attempt = attempt;
    if (run.score.outcome != Outcome::inconclusive || run.score.shows_elsewhere || attempt + 1 == kAttempts) return run;
  }
}

std::string find_command(const EngineInfo& engine, const QualifyCase& drawn, const std::string& model) {
  auto text = fmt::format("culprit find {} --engine {} --dtype {} --seed {} --cache {}", model,
                          engine.name == "ref" ? "ref" : engine.spec(), name_of(drawn.dtype), drawn.seed, drawn.cache.text());
  for (const auto& fault : drawn.faults) text += fmt::format(" --fault '{}'", fault.text());
  for (const auto& prompt : drawn.prompts) text += fmt::format(" --prompt {}", fmt::join(prompt, ","));
  return text;
}

}  // namespace culprit
