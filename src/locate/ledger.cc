#include "locate/ledger.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

namespace culprit {
namespace {

std::string text_of(const Intervention& intervention) {
  static constexpr std::string_view kKinds[] = {"exact", "variant", "replace"};
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

Json Ledger::to_json() const {
  Json out = Json::array();
  for (const auto& entry : entries_)
    out.push_back({{"id", entry.id},
                   {"purpose", entry.purpose},
                   {"engine", entry.engine},
                   {"library_sha256", entry.library_sha256},
                   {"load", culprit::to_json(entry.load)},
                   {"plan", culprit::to_json(entry.plan)},
                   {"seconds", json_number(entry.seconds)}});
  return out;
}

}  // namespace culprit
