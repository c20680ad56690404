#include "locate/session.h"

#include <fmt/format.h>

#include <algorithm>

namespace culprit {

Session::Session(EngineInfo engine, std::filesystem::path work, Ledger& ledger, SessionLimits limits)
    : engine_(std::move(engine)), work_(std::move(work)), ledger_(ledger), limits_(limits) {}

Result<std::unique_ptr<Session>> Session::start(EngineInfo engine, std::filesystem::path work, Ledger& ledger, SessionLimits limits) {
  std::unique_ptr<Session> session(new Session(std::move(engine), std::move(work), ledger, limits));
  CULPRIT_CHECK(session->ensure_started());
  return session;
}

Result<void> Session::ensure_started() {
  if (process_ && process_->running()) return {};
  is_loaded_ = false;
  CULPRIT_TRY(process_, DriverProcess::start({engine_.argv, work_ / "driver"}));
  CULPRIT_TRY(hello_, process_->request("hello", {{"protocol", 1}}, limits_.start));
  if (hello_.contains("hello")) hello_ = Json(hello_.at("hello"));
  CULPRIT_CHECK(get_field<std::string>(hello_, "library_sha256", "hello"));
  CULPRIT_CHECK(get_field<Json>(hello_, "ops", "hello"));
  return {};
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

Result<void> Session::load(const LoadPlan& plan) {
  CULPRIT_CHECK(ensure_started());
  if (is_loaded_ && to_json(plan) == to_json(loaded_)) return {};
  is_loaded_ = false;
  CULPRIT_CHECK(process_->request("load", {{"plan", to_json(plan)}}, limits_.load));
  loaded_ = plan;
  is_loaded_ = true;
  return {};
}

Result<std::vector<LoadedWeight>> Session::weights() {
  CULPRIT_TRY(const auto answer, process_->request("weights", {{"names", {"**"}}, {"values", false}}, limits_.load));
  CULPRIT_TRY(const auto listed, get_field<Json>(answer, "weights", "weights"));
  std::vector<LoadedWeight> weights;
  for (const auto& item : listed) {
    LoadedWeight weight;
    CULPRIT_TRY(weight.name, get_field<std::string>(item, "name", "weights"));
    CULPRIT_TRY(weight.hash, get_field<std::string>(item, "hash", "weights"));
    weight.checkpoint = item.value("checkpoint", "");
    weight.source_type = item.value("source_type", "");
    weights.push_back(std::move(weight));
  }
  return weights;
}

Result<Made> Session::run(const RunPlan& plan, const std::string& purpose) {
  CULPRIT_CHECK(validate(plan));
  auto settings = to_json(plan);
  settings.erase("name");
  const auto key = to_json(loaded_).dump() + settings.dump();
  if (const auto known = made_.find(key); known != made_.end()) return known->second;

  if (!process_ || !process_->running()) {
    const auto plan_loaded = loaded_;
    CULPRIT_CHECK(ensure_started());
    CULPRIT_CHECK(load(plan_loaded));
  }
  Entry entry;
  entry.engine = engine_.spec();
  entry.library_sha256 = hello_.value("library_sha256", "");
  entry.load = loaded_;
  entry.plan = plan;
  entry.purpose = purpose;
  entry.trace = work_ / fmt::format("run-{:03}", ledger_.entries().size() + 1);
  std::error_code ignored;
  std::filesystem::remove_all(entry.trace, ignored);
  const auto begin = std::chrono::steady_clock::now();
  CULPRIT_CHECK(process_->request("run", {{"plan", to_json(plan)}, {"trace", entry.trace.string()}}, limits_.run));
  entry.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  CULPRIT_TRY(auto trace, Trace::open(entry.trace));
  if (!trace.complete())
    return fail("engine-trace", fmt::format("the driver reported success, but its trace is whole only up to step {}", trace.steps()),
                entry.trace.string());
  Made made;
  made.entry = ledger_.add(std::move(entry));
  made.trace = std::make_shared<const Trace>(std::move(trace));
  made_[key] = made;
  return made;
}

Result<Json> Session::op(Json fields) {
  CULPRIT_CHECK(ensure_started());
  return process_->request("op", std::move(fields), limits_.run);
}

}  // namespace culprit
