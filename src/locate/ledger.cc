#include "locate/ledger.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/fields.h"

namespace culprit {
namespace {

std::string text_of(const Intervention& intervention) {
  static constexpr std::string_view kKinds[] = {"exact", "variant", "replace", "keep"};
  return fmt::format("{}({}{}{}; steps {})", kKinds[static_cast<int>(intervention.kind)], intervention.tap,
                     intervention.variant.empty() ? "" : "=" + intervention.variant,
                     intervention.file.empty() ? "" : "=" + intervention.file.filename().string(),
                     intervention.steps.empty() ? "all" : fmt::format("{}", fmt::join(intervention.steps, ",")));
}

// A shorter run of the same sequence feeds the same tokens, fewer of them: that is a matter of the schedule.
bool one_begins_the_other(const std::string& a, const std::string& b) {
  const auto& longer = a.size() > b.size() ? a : b;
  const auto& shorter = a.size() > b.size() ? b : a;
  return longer == shorter || longer.starts_with(shorter + ",");
}

}  // namespace

bool has_distinct_rows(const RunPlan& plan) {
  for (std::size_t row = 1; row < plan.sequences.size(); ++row)
    if (plan.sequences[row] != plan.sequences[0]) return true;
  return false;
}
bool decodes(const RunPlan& plan) {
  return std::ranges::any_of(plan.chunks.begin() + (plan.chunks.empty() ? 0 : 1), plan.chunks.end(),
                             [](int tokens) { return tokens == 1; });
}
bool feeds_several(const RunPlan& plan) {
  return plan.reprefill || std::ranges::any_of(plan.chunks, [](int tokens) { return tokens > 1; });
}
bool has_offset(const RunPlan& plan) { return plan.position_base > 0; }

constexpr Ability kAbilities[] = {
    {"rows", "two distinct rows: with one row, or equal ones, a fault of batch rows cannot show", has_distinct_rows},
    {"decoding", "a step of one token behind others: without, a fault of decode steps cannot show", decodes},
    {"prefill", "a step of several tokens: without, a fault of prefill cannot show", feeds_several},
    {"offset", "a position base above 0: without, a fault of the offset cannot show", has_offset},
};

std::span<const Ability> abilities() { return kAbilities; }

std::string BrokenRun::text() const {
  return fmt::format("arm '{}', {} ({} of {} steps are whole)", arm,
                     last_step < 0 ? "before its first step was whole" : fmt::format("after step {}", last_step), steps_whole, steps);
}

std::map<std::string, std::string> factors(const Entry& entry) {
  const auto& plan = entry.plan;
  std::map<std::string, std::string> out;
  out["engine"] = entry.engine;
  out["model"] = entry.load.model.string();
  out["dtype"] = name_of(entry.load.dtype);
  out["weights"] = std::string(name_of(entry.load.weights)) +
                   (entry.load.weight_fault.q4_1_nibble_offset == 4
                        ? ""
                        : fmt::format(", Q4_1 nibbles at byte {}", entry.load.weight_fault.q4_1_nibble_offset));
  std::vector<int> ids = plan.sequence_ids;
  if (ids.empty())
    for (int i = 0; i < static_cast<int>(plan.sequences.size()); ++i) ids.push_back(i);
  out["rows"] = fmt::format("{}", fmt::join(ids, ","));
  for (std::size_t row = 0; row < ids.size(); ++row)
    out[fmt::format("tokens.{}", ids[row])] = fmt::format("{}", fmt::join(plan.sequences[row], ","));
  out["schedule"] = fmt::format("{}{}", plan.reprefill ? "re-prefill " : "", fmt::join(plan.chunks, "+"));
  for (std::size_t step = 0; step < plan.active.size(); ++step)
    out["schedule"] += fmt::format("{}{}", step == 0 ? " of rows " : "; ", fmt::join(plan.active[step], ","));
  for (const auto& draft : plan.drafts) {
    out["schedule"] += fmt::format(", drafts at {}:", draft.step);
    for (const auto& row : draft.tokens) out["schedule"] += fmt::format(" {}", fmt::join(row, ","));
  }
  if (plan.reuse) {
    out["schedule"] += fmt::format(", behind {} tokens reused of", plan.reuse->common);
    for (const auto& row : plan.reuse->tokens) out["schedule"] += fmt::format(" {}", fmt::join(row, ","));
    out["schedule"] += fmt::format(" fed {}", fmt::join(plan.reuse->chunks, "+"));
  }
  out["restored"] = plan.restore_after.empty() ? "never" : fmt::format("after steps {}", fmt::join(plan.restore_after, ","));
  if (has_padding(plan)) {
    std::vector<int> padding;
    for (std::size_t row = 0; row < plan.sequences.size(); ++row) padding.push_back(padding_of(plan, row));
    out["padding"] = fmt::format("{}", fmt::join(padding, ","));
  }
  out["position base"] = std::to_string(plan.position_base);
  out["cache"] = plan.cache;
  out["spare slots"] = plan.poison ? "NaN" : "0";
  for (const auto& [op, variant] : plan.variants) out["variant " + op] = variant;
  std::vector<std::string> interventions, faults;
  for (const auto& intervention : plan.interventions) interventions.push_back(text_of(intervention));
  for (const auto& fault : plan.faults) faults.push_back(fault.text());
  out["interventions"] = fmt::format("{}", fmt::join(interventions, " "));
  out["faults"] = fmt::format("{}", fmt::join(faults, " "));
  out["evaluation"] = name_of(plan.sync);
  for (const auto& [name, value] : entry.other) out[name] = value;
  if (!plan.sync_taps.empty()) out["evaluation"] += fmt::format(" after {}", fmt::join(plan.sync_taps, ","));
  return out;
}

std::vector<std::string> differing_factors(const Entry& expected, const Entry& actual) {
  const auto a = factors(expected), b = factors(actual);
  std::set<std::string> names;
  for (const auto& [name, value] : a) names.insert(name);
  for (const auto& [name, value] : b) names.insert(name);
  std::vector<std::string> differing;
  for (const auto& name : names) {
    const auto in_a = a.find(name), in_b = b.find(name);
    const bool in_both = in_a != a.end() && in_b != b.end();
    if (name.starts_with("tokens.") && (!in_both || one_begins_the_other(in_a->second, in_b->second))) continue;
    if (!in_both || in_a->second != in_b->second) differing.push_back(name);
  }
  return differing;
}

int Ledger::add(Entry entry) {
  entry.id = static_cast<int>(entries_.size()) + 1;
  entries_.push_back(std::move(entry));
  return entries_.back().id;
}

Result<const Entry*> Ledger::entry(int id) const {
  if (id < 1 || id > static_cast<int>(entries_.size()))
    return fail("never-run", fmt::format("run {} was not made; there are {}", id, entries_.size()));
  return &entries_[static_cast<std::size_t>(id - 1)];
}

Result<std::string> Ledger::contrast(int expected, int actual) const {
  CULPRIT_TRY(const auto* a, entry(expected));
  CULPRIT_TRY(const auto* b, entry(actual));
  if (a->engine == b->engine && a->library_sha256 != b->library_sha256)
    return fail("library-changed", fmt::format("runs {} and {} of {} loaded different libraries ({:.12} and {:.12})", expected, actual,
                                               a->engine, a->library_sha256, b->library_sha256));
  const auto differing = differing_factors(*a, *b);
  if (differing.size() == 1) return differing.front();
  if (differing.empty())
    return fail("confounded", fmt::format("runs {} and {} have the same settings: nothing to contrast", expected, actual));
  return fail("confounded",
              fmt::format("runs {} and {} differ in {} factors: {}", expected, actual, differing.size(), fmt::join(differing, "; ")));
}

Result<std::vector<int>> Ledger::having(const std::map<std::string, std::string>& wanted) const {
  std::vector<int> all;
  std::map<std::string, std::vector<int>> each;  // runs that have one of the factors
  std::set<std::string> names;
  for (const auto& entry : entries_) {
    const auto has = factors(entry);
    bool fits = true;
    for (const auto& [name, value] : has) names.insert(name);
    for (const auto& [name, value] : wanted) {
      const auto found = has.find(name);
      const bool equal = found != has.end() && found->second == value;
      if (equal) each[name].push_back(entry.id);
      fits = fits && equal;
    }
    if (fits) all.push_back(entry.id);
  }
  std::vector<std::string> parts;
  for (const auto& [name, value] : wanted) {
    if (!names.contains(name))
      return fail("factor-unknown", fmt::format("no run has a factor '{}'; there are {}", name, fmt::join(names, ", ")));
    const auto& runs = each[name];
    parts.push_back(runs.empty() ? fmt::format("none has {} = {}", name, value)
                                 : fmt::format("{} = {} have {}", name, value, fmt::join(runs, ", ")));
  }
  if (!all.empty()) return all;
  return fail("never-run", fmt::format("no run has all of them: {}", fmt::join(parts, "; ")));
}

Result<void> Ledger::can_show(const std::vector<int>& entries, const Ability& ability) const {
  for (const int id : entries) {
    CULPRIT_TRY(const auto* run, entry(id));
    if (ability.has(run->plan)) return {};
  }
  return fail("cannot-show", fmt::format("none of the {} runs has {}", entries.size(), ability.what));
}

Result<Ledger> Ledger::from_json(const Json& runs) {
  const auto invalid = [](const std::string& why) { return fail("verdict-invalid", why); };
  if (!runs.is_array()) return invalid("it holds no runs");
  Ledger ledger;
  for (const auto& run : runs) {
    Entry entry;
    int id = 0;
    Fields fields(run, fmt::format("run {}", ledger.entries_.size() + 1), "verdict-invalid");
    fields.required("id", id).required("purpose", entry.purpose).required("engine", entry.engine);
    fields.required("library_sha256", entry.library_sha256).optional("seconds", entry.seconds).optional("factors", entry.other);
    const auto *load = fields.find("load"), *plan = fields.find("plan");
    CULPRIT_CHECK(fields.done());
    if (load == nullptr || plan == nullptr) return invalid(fmt::format("run {} has no load or no plan", id));
    if (id != ledger.add(entry)) return invalid(fmt::format("run {} is at the place of run {}", id, ledger.entries_.size()));
    CULPRIT_TRY(ledger.entries_.back().load, load_plan_from_json(*load));
    CULPRIT_TRY(ledger.entries_.back().plan, run_plan_from_json(*plan));
  }
  return ledger;
}

Json Ledger::to_json() const {
  Json out = Json::array();
  for (const auto& entry : entries_) {
    out.push_back({{"id", entry.id},
                   {"purpose", entry.purpose},
                   {"engine", entry.engine},
                   {"library_sha256", entry.library_sha256},
                   {"load", culprit::to_json(entry.load)},
                   {"plan", culprit::to_json(entry.plan)},
                   {"seconds", json_number(entry.seconds)}});
    if (!entry.other.empty()) out.back()["factors"] = entry.other;
  }
  return out;
}

}  // namespace culprit
