#include "qualify/accuracy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/version.h"

namespace culprit {
namespace {

template <class T>
double median(std::vector<T> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const auto middle = values.size() / 2;
  if (values.size() % 2 == 1) return static_cast<double>(values[middle]);
  return (static_cast<double>(values[middle - 1]) + static_cast<double>(values[middle])) / 2;
}

std::string share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? std::string("-") : fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string total_line(const char* what, int part, int whole) {
  const auto [low, high] = wilson_interval(part, whole);
  return fmt::format("| {} | {} of {} | {} | {:.1f} to {:.1f} % |\n", what, part, whole, share(part, whole), 100 * low, 100 * high);
}

std::string condition_line(const char* what, const ConditionScore& score) {
  return fmt::format("| {} | {} | {} | {} | {} |\n", what, score.bad_covered, score.bad_left_out, score.good_covered, score.good_left_out);
}

std::string cache_kind(const QualifyCase& drawn) {
  if (!drawn.cache.keeps_all() && drawn.cache.kind == CacheKind::rotating)
    return drawn.cache.size >= 64 ? "rotating, holds all" : "rotating, drops";
  const auto text = drawn.cache.text();
  return text.substr(0, text.find(':'));
}

std::string weights_kind(const QualifyCase& drawn) { return drawn.bits == 0 ? "dense" : fmt::format("{} bits", drawn.bits); }

std::string fault_ids(const QualifyCase& drawn) {
  std::string ids;
  for (const auto& fault : drawn.faults) ids += (ids.empty() ? "" : " and ") + fault.id;
  return ids;
}

std::string tap_kind(const QualifyCase& drawn) {
  const auto tap = drawn.faults.front().parameter("tap", "");
  if (tap.empty()) return "all taps";
  if (tap.ends_with(".*")) return "one layer";
  return tap.find('*') != std::string::npos ? "one role" : "one tap";
}

using Groups = std::map<std::string, Tally>;

template <class Key>
Groups grouped(const Campaign& campaign, Key&& key) {
  Groups groups;
  for (const auto& one : campaign.cases)
    if (!one.drawn.is_null()) groups[key(one.drawn)].add(one.score);
  return groups;
}

Tally all_of(const Campaign& campaign) {
  Tally all;
  for (const auto& one : campaign.cases)
    if (!one.drawn.is_null()) all.add(one.score);
  return all;
}

std::string group_table(const char* what, const Groups& groups) {
  std::string text = fmt::format(
      "\n## By {0}\n\n| {0} | cases | not met | localised | explained | proved | wrong op | missed | failed | conditions by call, seen / "
      "unseen | by place | "
      "runs until named | seconds |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
      what);
  for (const auto& [name, tally] : groups)
    text += fmt::format("| {} | {} | {} | {} of {} | {} | {} | {} | {} | {} | {} / {} of {} | {} / {} | {:g} | {:.2g} |\n", name,
                        tally.cases, tally.inconclusive, tally.localised, tally.shown(), tally.explained, tally.proved, tally.wrong_op,
                        tally.missed, tally.failed, tally.seen_calls, tally.unseen_calls, tally.conditions, tally.seen_places,
                        tally.unseen_places, median(tally.runs_first), median(tally.seconds));
  return text;
}

/// The nulls by what they have, with their alarms.
std::string null_table(const Campaign& campaign) {
  std::map<std::string, std::pair<int, int>> kinds;
  for (const auto& one : campaign.cases) {
    if (!one.drawn.is_null()) continue;
    auto& [cases, alarms] = kinds[std::string(name_of(one.drawn.null_kind))];
    ++cases;
    alarms += one.score.outcome != Outcome::quiet;
  }
  if (kinds.empty()) return {};
  std::string text = "\n## Nulls\n\n| null | cases | not quiet |\n|---|---|---|\n";
  for (const auto& [name, counts] : kinds) text += fmt::format("| {} | {} | {} |\n", name, counts.first, counts.second);
  return text;
}

/// What became of each planted fault whose op was changed: the id that was accepted for it, or why there is none.
std::string accepted_for(const CaseScore& score, const std::string& op) {
  for (const auto& named : score.named) {
    if (named.op != op) continue;
    if (named.accepted.empty()) return named.unsettled ? "not settled" : "none";
    return named.accepted.substr(0, named.accepted.find(':')) + (named.explained ? "" : " (predicts else)");
  }
  return "not named";
}

std::string confusion(const Campaign& campaign) {
  std::map<std::string, std::map<std::string, int>> rows;
  std::map<std::string, int> columns;
  const auto count = [&](const std::string& planted, const std::string& accepted) {
    ++rows[planted][accepted];
    ++columns[accepted];
  };
  for (const auto& [drawn, score] : campaign.cases) {
    for (const auto& fault : drawn.faults) {
      const auto* entry = find_fault(fault.id);
      bool changed = false;
      for (const auto op : entry->ops) {
        const auto name = std::string(name_of(op));
        if (std::ranges::find(score.changed_ops, name) == score.changed_ops.end()) continue;
        changed = true;
        count(fault.id, accepted_for(score, name));
      }
      if (!changed) count(fault.id, score.outcome == Outcome::failed ? "failed" : "not met");
    }
    if (drawn.is_null())
      for (const auto& op : score.named_ops) count("no fault", "alarm: " + op);
  }
  std::string text = "\n## Planted and accepted\n\nOne count for each op that a planted fault changed.\n\n| planted |";
  for (const auto& [name, total] : columns) text += fmt::format(" {} |", name);
  text += "\n|---|";
  for (std::size_t i = 0; i < columns.size(); ++i) text += "---|";
  text += '\n';
  for (const auto& [planted, counts] : rows) {
    text += fmt::format("| {} |", planted);
    for (const auto& [name, total] : columns) text += counts.contains(name) ? fmt::format(" {} |", counts.at(name)) : " |";
    text += '\n';
  }
  return text;
}

/// Why a case is to be looked at; empty: it is not.
std::string fault_of(const CaseScore& score) {
  if (!is_right(score.outcome)) return fmt::format("{}: {}", name_of(score.outcome), score.why);
  for (const auto& named : score.named) {
    if (!named.accepted.empty() && !named.explained) return fmt::format("a wrong fault is accepted for {}: {}", named.op, named.accepted);
    if (!named.readable) return fmt::format("the condition of {} cannot be read: {}", named.op, named.condition);
  }
  return {};
}

std::string misses(const Campaign& campaign) {
  std::string text = "\n## Misses\n\n";
  std::string lines;
  for (const auto& [drawn, score] : campaign.cases)
    if (const auto why = fault_of(score); !why.empty())
      lines += fmt::format("* {} ({}): {}\n\n      {}\n", drawn.name, describe(drawn), why, only_command(campaign, drawn.name));
  return text + (lines.empty() ? "None.\n" : lines);
}

const char* reason_of(const CaseScore& score) {
  if (score.explained()) return "explained, not proved";
  const bool unsettled = std::ranges::all_of(score.named, [](const NamedOp& named) { return named.explained || named.unsettled; });
  return unsettled ? "not settled: several faults predict all that was seen, the planted one among them" : "not explained";
}

std::string unexplained(const Campaign& campaign) {
  std::string lines;
  for (const auto& [drawn, score] : campaign.cases) {
    if (score.outcome != Outcome::localised || score.proved() || score.wrong_fault()) continue;
    lines += fmt::format("| {} | {} | {} |\n", drawn.name, describe(drawn), reason_of(score));
  }
  if (lines.empty()) return {};
  return fmt::format("\n## Localised, and no more\n\n`{}` repeats one.\n\n| case | | |\n|---|---|---|\n{}", only_command(campaign, "CASE"),
                     lines);
}

std::string inexact(const Campaign& campaign) {
  std::string lines;
  const auto counts = [](const ConditionScore& score) { return fmt::format("{} / {}", score.good_covered, score.bad_left_out); };
  for (const auto& [drawn, score] : campaign.cases)
    for (const auto& named : score.named)
      if (named.readable && !(named.seen.calls.exact() && named.unseen.calls.exact()))
        lines += fmt::format("| {} | {} | {} | {} | {} | {} |\n", drawn.name, describe(drawn), named.op, named.condition,
                             counts(named.seen.calls), counts(named.unseen.calls));
  if (lines.empty()) return {};
  return "\n## Conditions that are not exact by call\n\nCalls that the condition takes in and the fault left alone / that the fault "
         "changed "
         "and the condition leaves out.\n\n| case | | op | condition | seen | unseen |\n|---|---|---|---|---|---|\n" +
         lines;
}

constexpr const char* kMethod = R"(
## What is counted

Each case draws a fault of the catalogue with a value for each parameter and a tap (all, one layer, one role, one of both), a model of random
shape and weights, a dtype and a cache; one in ten has two faults on different ops. `find` is run as users run it. That a fault is planted is
known to it in two places only: the right arm of a proof is the run without the fault, and a search without result is called inconclusive.

* Truth: at every call that find's runs recorded, the planted fault itself is asked which places it changes, given the recorded inputs. A
  place is changed when a bit of it is; a cache's place stays so until its position is written again. Bounds, the audit and the verdict take no
  part in it.
* Localised: every op with a changed place is named, and no other op. A wrong op is a failure, whatever else is named.
* Not met: find says that nothing was changed, and the same runs without the fault hold the same bits. Anything else without a defect is missed.
* Explained: the accepted fault makes of every recorded call of the op what the planted one makes, bit for bit. Not settled: several faults
  predict all that was seen, the planted one among them, and find names none. Proved: explained, and so says the verdict.
* Condition: its predicates, read from the verdict's text, against the places that were changed: in find's own runs (seen), and in up to ten
  that find does not make (unseen: other tokens, lengths, positions and schedules). Exact by place: it takes in all changed places and no other.
  By call (one op at one step of one run): it takes in a place of each call that was changed, and none of any other. A fault may leave a place or a
  call as it was although its trigger is met: the last token of a chunk without a mask, rows that are equal anyway, a change within a rounding. A
  condition that names the trigger is then not exact.
* Runs until named: the runs that were made when the audit of the last of them first had each changed op outside its bound. find audits after
  all arms, so it makes them all.
* A fault that changes nothing in any run of its model, find's or the others, is a null of that model and no case: it is drawn again, and counted.
* Intervals are Wilson's, at 95 %.
)";

}  // namespace

void Tally::add(const CaseScore& score) {
  ++cases;
  inconclusive += score.outcome == Outcome::inconclusive;
  localised += score.outcome == Outcome::localised;
  explained += score.explained();
  proved += score.proved();
  wrong_op += score.outcome == Outcome::wrong_op;
  missed += score.outcome == Outcome::missed;
  failed += score.outcome == Outcome::failed;
  wrong_fault += score.wrong_fault();
  const auto sum = [](ConditionScore& total, const ConditionScore& more) {
    total.bad_covered += more.bad_covered;
    total.bad_left_out += more.bad_left_out;
    total.good_covered += more.good_covered;
    total.good_left_out += more.good_left_out;
  };
  for (const auto& named : score.named) {
    ++conditions;
    seen_calls += named.readable && named.seen.calls.exact();
    seen_places += named.readable && named.seen.places.exact();
    unseen_calls += named.readable && named.unseen.calls.exact();
    unseen_places += named.readable && named.unseen.places.exact();
    sum(seen.places, named.seen.places);
    sum(seen.calls, named.seen.calls);
    sum(unseen.places, named.unseen.places);
    sum(unseen.calls, named.unseen.calls);
  }
  if (score.runs_first > 0) runs_first.push_back(score.runs_first);
  runs.push_back(score.runs);
  seconds.push_back(score.seconds);
}

std::pair<double, double> wilson_interval(int successes, int trials) {
  if (trials == 0) return {0, 1};
  constexpr double z = 1.959963984540054;  // the normal's 97.5 % quantile
  const double n = trials, p = successes / n, spread = z * z / n;
  const double middle = p + spread / 2, half = z * std::sqrt(p * (1 - p) / n + spread / (4 * n));
  return {std::max(0.0, (middle - half) / (1 + spread)), std::min(1.0, (middle + half) / (1 + spread))};
}

std::string describe(const QualifyCase& drawn) {
  std::vector<std::string> what;
  for (const auto& fault : drawn.faults) what.push_back(fmt::format("`{}`", fault.text()));
  if (drawn.is_null()) what.emplace_back(name_of(drawn.null_kind));
  return fmt::format("{}, {}, {}, {}, {}", fmt::join(what, " and "), drawn.facts.architecture, weights_kind(drawn), name_of(drawn.dtype),
                     drawn.cache.text());
}

std::string only_command(const Campaign& campaign, const std::string& name) {
  return fmt::format("culprit qualify --engine {} --seed {} --only {}", campaign.engine, campaign.seed, name);
}

std::string accuracy_page(const Campaign& campaign) {
  const auto all = all_of(campaign);
  int quiet = 0, nulls = 0, imprecise = 0, redrawn = 0;
  std::vector<double> seconds;
  for (const auto& [drawn, score] : campaign.cases) {
    seconds.push_back(score.seconds);
    redrawn += score.attempt;
    if (!drawn.is_null()) continue;
    ++nulls;
    quiet += score.outcome == Outcome::quiet;
    imprecise += score.precision_findings > 0;
  }
  std::string text = fmt::format(
      "# Accuracy\n\nculprit {}, engine {}, catalogue {:.12}, written by\n\n    culprit qualify --engine {} --count {} --nulls {} --seed "
      "{}\n\n"
      "| | | share | 95 % |\n|---|---|---|---|\n",
      version(), campaign.engine, catalogue_hash(), campaign.engine, campaign.count, campaign.nulls, campaign.seed);
  text += total_line("inconclusive: no run of find meets the trigger, other runs of the model do", all.inconclusive, all.cases);
  text += total_line("localised, of those that changed something", all.localised, all.shown());
  text += fmt::format("| drawn again, for no run of the model shows the fault | {} | | |\n", redrawn);
  text += total_line("a wrong op named", all.wrong_op, all.shown());
  text += total_line("explained", all.explained, all.shown());
  text += total_line("proved", all.proved, all.shown());
  text += total_line("a wrong fault accepted", all.wrong_fault, all.shown());
  text += total_line("conditions that are exact by call in find's runs", all.seen_calls, all.conditions);
  text += total_line("conditions that are exact by call in other runs", all.unseen_calls, all.conditions);
  text += total_line("conditions that are exact by place in find's runs", all.seen_places, all.conditions);
  text += total_line("conditions that are exact by place in other runs", all.unseen_places, all.conditions);
  text += total_line("false alarms on nulls", nulls - quiet, nulls);
  text += "\n| conditions | changed, taken in | changed, left out | right, taken in | right, left out |\n|---|---|---|---|---|\n";
  text += condition_line("calls of find's runs", all.seen.calls) + condition_line("calls of other runs", all.unseen.calls);
  text += condition_line("places of find's runs", all.seen.places) + condition_line("places of other runs", all.unseen.places) + "\n";
  text +=
      fmt::format("Runs until every changed op was named: median {:g}, of {:g} runs that a find makes. Seconds a find: median {:.2f}.\n",
                  median(all.runs_first), median(all.runs), median(seconds));
  if (imprecise > 0) text += fmt::format("Precision findings stood beside {} of {} nulls.\n", imprecise, nulls);
  text += misses(campaign);
  text += group_table("fault", grouped(campaign, fault_ids));
  text += group_table("taps", grouped(campaign, tap_kind));
  text += group_table("architecture", grouped(campaign, [](const QualifyCase& drawn) { return drawn.facts.architecture; }));
  text += group_table("dtype", grouped(campaign, [](const QualifyCase& drawn) { return std::string(name_of(drawn.dtype)); }));
  text += group_table("weights", grouped(campaign, weights_kind));
  text += group_table("cache", grouped(campaign, cache_kind));
  text += null_table(campaign);
  text += confusion(campaign);
  text += unexplained(campaign);
  text += inexact(campaign);
  return text + kMethod;
}

Json to_json(const Campaign& campaign) {
  const auto all = all_of(campaign);
  Json cases = Json::array();
  int false_alarms = 0;
  for (const auto& [drawn, score] : campaign.cases) {
    auto json = to_json(score);
    Json faults = Json::array();
    for (const auto& fault : drawn.faults) faults.push_back(fault.text());
    json["faults"] = faults;
    json["architecture"] = drawn.facts.architecture;
    json["bits"] = drawn.bits;
    json["dtype"] = name_of(drawn.dtype);
    json["cache"] = drawn.cache.text();
    json["reproduce"] = only_command(campaign, drawn.name);
    false_alarms += drawn.is_null() && score.outcome != Outcome::quiet;
    cases.push_back(std::move(json));
  }
  return {{"schema", "culprit-accuracy"},
          {"version", 1},
          {"engine", campaign.engine},
          {"seed", campaign.seed},
          {"count", campaign.count},
          {"nulls", campaign.nulls},
          {"catalogue", catalogue_hash()},
          {"totals",
           {{"not_met", all.inconclusive},
            {"changed", all.shown()},
            {"localised", all.localised},
            {"explained", all.explained},
            {"proved", all.proved},
            {"wrong_op", all.wrong_op},
            {"missed", all.missed},
            {"failed", all.failed},
            {"wrong_fault", all.wrong_fault},
            {"conditions", all.conditions},
            {"conditions_exact_by_call", {{"seen", all.seen_calls}, {"unseen", all.unseen_calls}}},
            {"conditions_exact_by_place", {{"seen", all.seen_places}, {"unseen", all.unseen_places}}},
            {"false_alarms", false_alarms},
            {"runs_until_named_median", median(all.runs_first)},
            {"runs_median", median(all.runs)},
            {"seconds_median", json_number(median(all.seconds))}}},
          {"cases", std::move(cases)}};
}

}  // namespace culprit
