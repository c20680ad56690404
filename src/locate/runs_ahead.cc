#include "locate/runs_ahead.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/driver_process.h"

namespace culprit {

RunsAhead::RunsAhead(EngineInfo engine, std::filesystem::path work, LoadPlan load, std::vector<Wanted> wanted, Limits limits)
    : engine_(std::move(engine)), work_(std::move(work)), load_(std::move(load)), limits_(limits) {
  for (auto& one : wanted)
    if (std::ranges::none_of(items_, [&](const Item& item) { return item.wanted.key == one.key; }))
      items_.push_back({.wanted = std::move(one)});
  thread_ = std::thread([this] { this->work(); });
}

RunsAhead::~RunsAhead() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  thread_.join();
}

std::optional<RunsAhead::Done> RunsAhead::take(const std::string& key) {
  std::unique_lock lock(mutex_);
  const auto found = std::ranges::find_if(items_, [&](const Item& item) { return item.wanted.key == key; });
  if (found == items_.end()) return std::nullopt;
  if (found->state == State::waiting) found->state = State::failed;  // the caller makes it
  changed_.wait(lock, [&] { return found->state != State::running; });
  if (found->state != State::done) return std::nullopt;
  found->state = State::failed;  // its trace is the caller's now
  return found->done;
}

RunsAhead::Item* RunsAhead::begin_next() {
  const std::lock_guard lock(mutex_);
  if (stop_) return nullptr;
  const auto next = std::ranges::find(items_.rbegin(), items_.rend(), State::waiting, &Item::state);
  if (next == items_.rend()) return nullptr;
  next->state = State::running;
  return &*next;
}

void RunsAhead::work() {
  auto process = DriverProcess::start({engine_.argv, work_ / "driver-ahead"});
  const auto ask = [&](const char* action, Json fields, std::chrono::seconds limit) {
    return process && (*process)->request(action, std::move(fields), limit).has_value();
  };
  if (!ask("hello", {{"protocol", 1}}, limits_.start) || !ask("load", {{"plan", to_json(load_)}}, limits_.load)) return;
  while (auto* item = begin_next()) {
    const Done done{.trace = work_ / fmt::format("ahead-{:03}", item - items_.data() + 1)};
    std::error_code ignored;
    std::filesystem::remove_all(done.trace, ignored);
    const auto begin = std::chrono::steady_clock::now();
    const bool made = ask("run", {{"plan", to_json(item->wanted.plan)}, {"trace", done.trace.string()}}, limits_.run);
    const std::lock_guard lock(mutex_);
    item->done = done;
    item->done.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    item->state = made ? State::done : State::failed;
    changed_.notify_all();
  }
}

}  // namespace culprit
