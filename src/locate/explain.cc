#include "locate/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>

#include "audit/bounded.h"
#include "audit/items.h"
#include "audit/weights.h"
#include "base/file.h"
#include "base/pool.h"
#include "locate/recorded_call.h"

namespace culprit {
namespace {

bool same_value(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

struct Prepared {
  OpCall call;
  Bounded right;  // float64 value and bound of the right op
  std::vector<double> observed;
  std::vector<double> rounded;  // right value rounded once
  Arithmetic arithmetic;
  Tensor magnitude;  // of a weight that the engine computes from parts
  bool bad = false;
};

Result<Bounded> bounded_call(const OpCall& call, const Prepared& record) {
  std::vector<Array> inputs;
  for (const auto& input : call.inputs) inputs.push_back(to_array(input));
  const bool other_parts = call.packed != nullptr && call.packed != record.call.packed;
  const auto magnitude = other_parts ? quantized_values(*call.packed, call.dtype).magnitude : record.magnitude;
  return bounded_node(*call.node, inputs, call.context, call.dtype, record.arithmetic, magnitude);
}

/// The value and bound of what a broken op computed, in the order of its output; nothing where it wrote exact values.
Result<std::optional<Bounded>> bounded_broken(const Broken& broken, const Prepared& record) {
  std::optional<Bounded> whole;
  if (broken.altered) {
    CULPRIT_TRY(whole, bounded_call(*broken.altered, record));
  }
  for (const auto& call : broken.altered_rows) {
    CULPRIT_TRY(const auto row, bounded_call(call, record));
    if (!whole) whole.emplace();
    whole->value.values.insert(whole->value.values.end(), row.value.values.begin(), row.value.values.end());
    whole->bound.insert(whole->bound.end(), row.bound.begin(), row.bound.end());
  }
  return whole;
}

bool within(const Bounded& legal, std::size_t i, double observed) {
  return std::abs(legal.value.values[i] - observed) <= legal.bound[i] ||
         (observed == 0 && !legal.may_vanish.empty() && legal.may_vanish[i]);
}

/// What the fault does to a call, nothing at taps that it is confined from.
Result<std::optional<Broken>> broken_at(const FaultSpec& spec, const FaultEntry& entry, const OpCall& call) {
  if (!glob_match(spec.parameter("tap", "**"), call.node->output)) return std::nullopt;
  return entry.breaks(spec, call);
}

// What one hypothesis says of one record. Elements of the storage that the trace does not know are NaN in the prediction only where the
// observation cannot contradict it; they count as unmatched, so that nothing is explained by ignorance.
Result<bool> score_record(const FaultSpec& spec, const FaultEntry& entry, const Prepared& record, PredictionScore& score) {
  CULPRIT_TRY(const auto broken, broken_at(spec, entry, record.call));
  const auto count = static_cast<std::int64_t>(record.observed.size());
  score.records += 1;
  score.elements += count;
  std::optional<Bounded> altered;
  std::vector<double> predicted;
  if (broken) {
    predicted = broken->output.values();
    CULPRIT_TRY(altered, bounded_broken(*broken, record));
  }
  bool all = true;
  for (std::size_t i = 0; i < record.observed.size(); ++i) {
    const double observed = record.observed[i];
    const bool changes = broken && !same_value(predicted[i], record.rounded[i]);
    bool match = false;
    if (changes) {
      match = same_value(predicted[i], observed);
      score.exact += match;
      if (!match && altered) match = within(*altered, i, observed);
      score.changed += 1;
      score.changed_matched += match;
    } else {
      match = same_value(record.rounded[i], observed) || within(record.right, i, observed);
    }
    score.matched += match;
    all = all && match;
  }
  return all;
}

Result<std::vector<Prepared>> prepare(const Model& model, UsedWeights& weights, const std::vector<RecordedOp>& records,
                                      const AuditOptions& options) {
  std::vector<Prepared> prepared;
  for (const auto& record : records) {
    const auto& node = model.graph().nodes()[static_cast<std::size_t>(record.node)];
    Prepared item;
    CULPRIT_TRY(auto recorded, recorded_call(model, weights, *record.trace, record.step, node));
    item.call = std::move(recorded.call);
    item.magnitude = std::move(recorded.magnitude);
    item.arithmetic = arithmetic_of(*record.trace, std::string(name_of(node.op)), record.variant, options);
    CULPRIT_TRY(item.right, bounded_call(item.call, item));
    CULPRIT_TRY(const auto observed, record.trace->tensor(*record.trace->find(record.step, node.output)));
    item.observed = observed.values();
    item.rounded = item.call.result.values();
    item.bad = record.bad;
    prepared.push_back(std::move(item));
  }
  return prepared;
}

// Every nth of what is too many, the ends included: enough to refute a wrong model, and the survivors see all.
std::vector<RecordedOp> spread(const std::vector<RecordedOp>& records, bool bad, std::size_t most) {
  std::vector<RecordedOp> wanted, chosen;
  for (const auto& record : records)
    if (record.bad == bad) wanted.push_back(record);
  const auto stride = std::max<std::size_t>(1, wanted.size() / most);
  for (std::size_t i = 0; i < wanted.size(); i += stride) chosen.push_back(wanted[i]);
  return chosen;
}

Result<PredictionScore> total_score(const FaultSpec& spec, const std::vector<Prepared>& records) {
  const auto* entry = find_fault(spec.id);
  if (entry == nullptr) return fail("fault-unknown", fmt::format("there is no fault '{}'", spec.id));
  std::vector<PredictionScore> scores(records.size());
  std::mutex guard;
  std::optional<Error> error;
  parallel_for(records.size(), 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      if (auto done = score_record(spec, *entry, records[i], scores[i]); !done) {
        const std::lock_guard lock(guard);
        error = done.error();
      }
  });
  if (error) return tl::unexpected(*error);
  PredictionScore total{.fault = spec.text()};
  for (const auto& score : scores) {
    total.records += score.records;
    total.elements += score.elements;
    total.matched += score.matched;
    total.changed += score.changed;
    total.changed_matched += score.changed_matched;
    total.exact += score.exact;
  }
  return total;
}

Result<bool> same_predictions(const FaultSpec& spec, const FaultSpec& other, const std::vector<Prepared>& records) {
  const auto* entry = find_fault(spec.id);
  for (const auto& record : records) {
    CULPRIT_TRY(const auto one, broken_at(spec, *entry, record.call));
    CULPRIT_TRY(const auto two, broken_at(other, *entry, record.call));
    if (one.has_value() != two.has_value()) return false;
    if (!one) continue;
    if (one->altered || two->altered || !one->altered_rows.empty() || !two->altered_rows.empty()) return false;
    if (!std::ranges::equal(one->output.values(), two->output.values(), same_value)) return false;
  }
  return true;
}

// A parameter may mean nothing in a model (what an output buffer held, where the input is copied into it first). Only when each of its
// values was accepted and all predict the same are they one model; two that happen to agree in these runs stay two.
Result<void> fold_alike(Op op, const std::vector<Prepared>& records, Explanation& explanation) {
  auto& accepted = explanation.accepted;
  if (accepted.size() < 2) return {};
  for (const auto& spec : accepted)
    if (spec.id != accepted.front().id) return {};
  const auto siblings = std::ranges::count_if(hypotheses(op), [&](const FaultSpec& spec) { return spec.id == accepted.front().id; });
  if (siblings != static_cast<std::ptrdiff_t>(accepted.size())) return {};
  for (std::size_t i = 1; i < accepted.size(); ++i) {
    CULPRIT_TRY(const bool same, same_predictions(accepted.front(), accepted[i], records));
    if (!same) return {};
  }
  explanation.alike.assign(accepted.begin() + 1, accepted.end());
  accepted.resize(1);
  return {};
}

/// Globs of taps that hold all bad records and not all others: their role in each layer, their layer, their one tap.
std::vector<std::string> confinements(const Graph& graph, const std::vector<RecordedOp>& records) {
  std::set<int> layers, bad_layers;
  std::set<std::string> roles, bad_roles, bad_taps;
  for (const auto& record : records) {
    const auto& node = graph.nodes()[static_cast<std::size_t>(record.node)];
    layers.insert(node.layer);
    roles.insert(tap_role(node.output));
    if (!record.bad) continue;
    bad_layers.insert(node.layer);
    bad_roles.insert(tap_role(node.output));
    bad_taps.insert(node.output);
  }
  std::vector<std::string> globs;
  if (bad_taps.empty() || bad_layers.contains(-1)) return globs;
  const bool one_role = bad_roles.size() == 1 && roles.size() > 1, one_layer = bad_layers.size() == 1 && layers.size() > 1;
  if (one_role) globs.push_back(fmt::format("layers.*.{}", *bad_roles.begin()));
  if (one_layer) globs.push_back(fmt::format("layers.{}.*", *bad_layers.begin()));
  if (one_role && one_layer) globs.push_back(*bad_taps.begin());
  return globs;
}

/// What every hypothesis is tried on, and what those that survive are.
struct Evidence {
  std::vector<Prepared> screen;
  std::vector<Prepared> all;  // prepared when one survives
};

}  // namespace

Result<PredictionScore> predict(const Model& model, UsedWeights& weights, const FaultSpec& spec, const std::vector<RecordedOp>& records,
                                const AuditOptions& options) {
  CULPRIT_TRY(const auto prepared, prepare(model, weights, records, options));
  return total_score(spec, prepared);
}

namespace {

Result<Explanation> explain_confined(const Model& model, UsedWeights& weights, Op op, const std::vector<RecordedOp>& records,
                                     const AuditOptions& options, const std::string& tap, Evidence& evidence) {
  Explanation explanation;
  std::vector<FaultSpec> survivors;
  for (auto spec : hypotheses(op)) {
    if (!tap.empty()) spec.parameters["tap"] = tap;
    const auto* entry = find_fault(spec.id);
    PredictionScore score{.fault = spec.text()};
    bool all = true;
    for (const auto& record : evidence.screen) {
      CULPRIT_TRY(const bool matches, score_record(spec, *entry, record, score));
      all = all && matches;
    }
    if (score.changed == 0) continue;  // its trigger is never met in these runs
    if (all) {
      survivors.push_back(spec);
      continue;
    }
    explanation.rejected.push_back(fmt::format("{}: {} of {} elements that it would change are as seen, {} of {} in all", spec.text(),
                                               score.changed_matched, score.changed, score.matched, score.elements));
    explanation.scores.push_back(score);
  }
  if (!survivors.empty()) {
    if (evidence.all.empty()) {
      CULPRIT_TRY(evidence.all, prepare(model, weights, records, options));
    }
    for (const auto& spec : survivors) {
      CULPRIT_TRY(const auto total, total_score(spec, evidence.all));
      explanation.scores.push_back(total);
      if (total.complete())
        explanation.accepted.push_back(spec);
      else
        explanation.rejected.push_back(fmt::format("{}: {} of {} elements are as seen over all {} outputs", spec.text(), total.matched,
                                                   total.elements, total.records));
    }
    CULPRIT_CHECK(fold_alike(op, evidence.all, explanation));
  }
  std::ranges::stable_sort(explanation.scores, [](const PredictionScore& a, const PredictionScore& b) {
    return static_cast<double>(a.matched) * static_cast<double>(b.elements) >
           static_cast<double>(b.matched) * static_cast<double>(a.elements);
  });
  return explanation;
}

}  // namespace

Result<Explanation> explain(const Model& model, UsedWeights& weights, Op op, const std::vector<RecordedOp>& records,
                            const AuditOptions& options) {
  constexpr std::size_t kScreen = 12;  // records of each kind that every hypothesis sees
  auto screen_records = spread(records, true, kScreen);
  for (const auto& record : spread(records, false, kScreen)) screen_records.push_back(record);
  Evidence evidence;
  CULPRIT_TRY(evidence.screen, prepare(model, weights, screen_records, options));
  CULPRIT_TRY(auto whole, explain_confined(model, weights, op, records, options, {}, evidence));
  if (!whole.accepted.empty()) return whole;
  for (const auto& tap : confinements(model.graph(), records)) {
    CULPRIT_TRY(auto confined, explain_confined(model, weights, op, records, options, tap, evidence));
    if (confined.accepted.empty()) continue;
    confined.rejected.insert(confined.rejected.begin(), whole.rejected.begin(), whole.rejected.end());
    return confined;
  }
  return whole;
}

}  // namespace culprit
