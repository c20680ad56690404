#include "locate/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/fields.h"
#include "base/machine.h"
#include "format/safetensors.h"

namespace culprit {
namespace {

Error as_garbage(Error error) {
  error.id = "engine-garbage";
  return error;
}

/// What is read of it later without a look at its types.
Result<void> check_hello(const Json& hello) {
  std::string hash;
  CULPRIT_CHECK(Fields(hello, "hello", "engine-garbage").required("library_sha256", hash).done(true));
  CULPRIT_TRY(const auto ops, get_field<Json>(hello, "ops", "hello").map_error(as_garbage));
  for (const auto& [op, facts] : ops.items()) {
    std::vector<std::string> variants;
    CULPRIT_CHECK(Fields(facts, "hello: " + op, "engine-garbage").required("variants", variants).done(true));
    if (!facts.contains("arithmetic")) continue;
    for (const auto& [variant, arithmetic] : facts.at("arithmetic").items()) {
      std::string accumulate;
      CULPRIT_CHECK(Fields(arithmetic, "hello: " + op + "." + variant, "engine-garbage").optional("accumulate", accumulate).done(true));
    }
  }
  return {};
}

Error as_broken_file(Error error) {
  error.message = fmt::format("the driver reported success, but: {}", to_string(error));
  error.id = "engine-trace";
  return error;
}

/// The trace, when it holds every step of the plan, and the values that were hashed.
Result<Trace> open_whole(const std::filesystem::path& folder, const RunPlan& plan) {
  auto trace = Trace::open(folder).map_error(as_broken_file);
  if (!trace) return trace;
  const auto broken = [&](std::string_view why) {
    return fail("engine-trace", fmt::format("the driver reported success, but its trace broke off: {}", why), folder.string());
  };
  if (!trace->complete()) return broken(trace->ended_by());
  const auto expected = plan.capture_steps.empty() ? static_cast<std::size_t>(steps_of(plan)) : plan.capture_steps.size();
  if (static_cast<std::size_t>(trace->steps()) != expected) return broken(fmt::format("{} steps, expected {}", trace->steps(), expected));
  for (const auto& record : trace->records())
    if (!plan.hash_only) CULPRIT_CHECK(trace->verify(record).map_error(as_broken_file));
  return trace;
}

BrokenRun what_is_left_of(const RunPlan& plan, const std::filesystem::path& folder) {
  BrokenRun run;
  run.arm = plan.name;
  run.trace = folder;
  run.steps = steps_of(plan);
  const auto trace = Trace::open(folder);
  if (!trace) return run;
  const auto& records = trace->records();
  const auto broken =
      std::ranges::find_if(records, [&](const TapRecord& record) { return !record.file.empty() && !trace->verify(record); });
  for (auto record = records.begin(); record != broken; ++record) {
    if (broken != records.end() && record->step == broken->step) break;
    run.steps_whole += record->step != run.last_step;
    run.last_step = record->step;
  }
  return run;
}

}  // namespace

bool is_engine_failure(const Error& error) { return error.id.starts_with("engine-"); }

Session::Session(EngineInfo engine, std::filesystem::path work, Ledger& ledger, SessionLimits limits)
    : engine_(std::move(engine)), work_(std::move(work)), ledger_(ledger), limits_(limits) {}

Result<std::unique_ptr<Session>> Session::start(EngineInfo engine, std::filesystem::path work, Ledger& ledger, SessionLimits limits) {
  std::unique_ptr<Session> session(new Session(std::move(engine), std::move(work), ledger, limits));
  CULPRIT_CHECK(session->greet());
  return session;
}

Result<void> Session::greet() {
  CULPRIT_TRY(process_, DriverProcess::start({engine_.argv, work_ / "driver"}));
  CULPRIT_TRY(hello_, ask("hello", {{"protocol", 1}}, limits_.start));
  if (hello_.contains("hello")) hello_ = Json(hello_.at("hello"));
  return check_hello(hello_);
}

Result<Json> Session::ask(const std::string& action, Json fields, std::chrono::seconds limit) {
  return process_->request(action, std::move(fields), limit).map_error([&](Error error) {
    if (process_->refused() && !is_engine_failure(error) && error.id != "not-supported") {
      error.message = fmt::format("{}: {}", error.id, error.message);
      error.id = "engine-error";
    }
    return error;
  });
}

bool Session::offers(const std::string& op, const std::string& variant) const {
  const auto& ops = hello_.at("ops");
  if (!ops.contains(op) || !ops.at(op).contains("variants")) return false;
  const auto& variants = ops.at(op).at("variants");
  return std::ranges::find(variants, Json(variant)) != variants.end();
}

bool Session::has_own_loader() const {
  if (!hello_.contains("weight_sources")) return false;
  const auto& sources = hello_.at("weight_sources");
  return std::ranges::find(sources, Json("engine")) != sources.end();
}

bool Session::offers(Sync sync) const {
  if (!hello_.contains("syncs")) return true;
  const auto& syncs = hello_.at("syncs");
  return std::ranges::find(syncs, Json(name_of(sync))) != syncs.end();
}

Result<void> Session::load(const LoadPlan& plan) {
  if (is_loaded_ && to_json(plan) == to_json(loaded_)) return {};
  is_loaded_ = false;
  CULPRIT_CHECK(ask("load", {{"plan", to_json(plan)}}, limits_.load));
  loaded_ = plan;
  is_loaded_ = true;
  return {};
}

Result<std::vector<LoadedWeight>> Session::weights() {
  CULPRIT_TRY(const auto answer, ask("weights", {{"names", {"**"}}, {"values", false}}, limits_.load));
  CULPRIT_TRY(const auto listed, get_field<Json>(answer, "weights", "weights").map_error(as_garbage));
  std::vector<LoadedWeight> weights;
  for (const auto& item : listed) {
    auto& weight = weights.emplace_back();
    CULPRIT_CHECK(Fields(item, "weights", "engine-garbage")
                      .required("name", weight.name)
                      .required("hash", weight.hash)
                      .optional("checkpoint", weight.checkpoint)
                      .optional("source_type", weight.source_type)
                      .done(true));
  }
  return weights;
}

std::string Session::key_of(const RunPlan& plan) const {
  auto settings = to_json(plan);
  settings.erase("name");
  return to_json(loaded_).dump() + settings.dump();
}

void Session::run_ahead(const std::vector<RunPlan>& plans, std::int64_t model_bytes) {
  constexpr std::int64_t kShare = 4;  // of the memory: each process takes more than the model, and the files' cache is memory too
  if (!hello_.contains("parallel_runs") || hello_.at("parallel_runs") != true || std::thread::hardware_concurrency() < 2) return;
  if (2 * model_bytes > physical_memory_bytes() / kShare) return;
  std::vector<RunsAhead::Wanted> wanted;
  for (const auto& plan : plans)
    if (validate(plan) && !made_.contains(key_of(plan))) wanted.push_back({key_of(plan), plan});
  constexpr std::size_t kWorthwhile = 8;  // runs: loading takes as long as some
  ahead_.reset();
  if (wanted.size() < kWorthwhile) return;
  ahead_ = std::make_unique<RunsAhead>(engine_, work_, loaded_, std::move(wanted),
                                       RunsAhead::Limits{.start = limits_.start, .load = limits_.load, .run = limits_.run});
}

Entry Session::entry_of(const RunPlan& plan, const std::string& purpose) const {
  Entry entry;
  entry.engine = engine_.spec();
  entry.library_sha256 = hello_.value("library_sha256", "");
  entry.load = loaded_;
  entry.plan = plan;
  entry.purpose = purpose;
  return entry;
}

Made Session::entered(Entry entry, Trace trace) {
  Made made;
  made.entry = ledger_.add(std::move(entry));
  made.trace = std::make_shared<const Trace>(std::move(trace));
  return made;
}

Result<Made> Session::run(const RunPlan& plan, const std::string& purpose) {
  CULPRIT_CHECK(validate(plan));
  const auto key = key_of(plan);
  if (const auto known = made_.find(key); known != made_.end()) return known->second;
  const auto done = ahead_ == nullptr ? std::nullopt : ahead_->take(key);
  if (done) {
    if (auto trace = open_whole(done->trace, plan)) {  // else it is made here, where what goes wrong can be said
      auto entry = entry_of(plan, purpose);
      entry.trace = done->trace;
      entry.seconds = done->seconds;
      return made_[key] = entered(std::move(entry), *std::move(trace));
    }
  }
  CULPRIT_TRY(auto made, run_again(plan, purpose));
  made_[key] = made;
  return made;
}

Result<Made> Session::run_again(const RunPlan& plan, const std::string& purpose) {
  CULPRIT_CHECK(validate(plan));
  auto entry = entry_of(plan, purpose);
  entry.trace = work_ / fmt::format("run-{:03}", ledger_.entries().size() + 1);
  std::error_code ignored;
  std::filesystem::remove_all(entry.trace, ignored);
  const auto begin = std::chrono::steady_clock::now();
  auto answer = ask("run", {{"plan", to_json(plan)}, {"trace", entry.trace.string()}}, limits_.run);
  entry.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  auto trace = answer ? open_whole(entry.trace, plan) : tl::unexpected(std::move(answer).error());
  if (!trace) {
    if (is_engine_failure(trace.error())) broken_run_ = what_is_left_of(plan, entry.trace);
    return tl::unexpected(std::move(trace).error());
  }
  return entered(std::move(entry), *std::move(trace));
}

Result<Json> Session::op(Json fields) { return ask("op", std::move(fields), limits_.run); }

Result<Tensor> Session::op_output(const std::filesystem::path& file) {
  const auto opened = Safetensors::open(file).map_error(as_broken_file);
  if (!opened) return tl::unexpected(opened.error());
  return opened->tensor("output").map_error(as_broken_file);
}

}  // namespace culprit
