#include "locate/evaluation_order.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

namespace culprit {
namespace {

constexpr int kRepeats = 3;  // of each plan, the first run included
constexpr const char* kBase = "alone";
constexpr const char* kLogits = "logits";

/// The first tap, in order of steps and of the graph, that both traces recorded and that differs bit for bit; "TAP@STEP".
std::optional<std::string> first_difference(const Trace& expected, const Trace& actual, const Graph& graph) {
  std::vector<int> steps;
  for (const auto& record : expected.records())
    if (steps.empty() || steps.back() != record.step) steps.push_back(record.step);
  for (const int step : steps)
    for (const auto& node : graph.nodes()) {
      const auto *x = expected.find(step, node.output), *y = actual.find(step, node.output);
      if (x != nullptr && y != nullptr && x->hash != y->hash) return fmt::format("{}@{}", node.output, step);
    }
  return std::nullopt;
}

/// Two ways of making one run. The other way acts at places, and at none of them it is the first way.
struct Contrast {
  std::string order;
  RunPlan base, other;
  std::vector<std::string> places;  // in graph order
  RunPlan (*at)(const Contrast&, const std::vector<std::string>& places);
  bool audited = false;  // both were
};

RunPlan evaluated_at(const Contrast& contrast, const std::vector<std::string>& places) {
  auto plan = places.empty() ? contrast.base : contrast.other;
  plan.sync_taps = places;
  return plan;
}
RunPlan recorded_at(const Contrast& contrast, const std::vector<std::string>& places) {
  auto plan = contrast.base;
  plan.capture.insert(plan.capture.end(), places.begin(), places.end());
  return plan;
}

class Search {
 public:
  Search(Session& session, const Graph& graph, const Contrast& contrast, Made base, Made other)
      : session_(session), graph_(graph), contrast_(contrast), base_(std::move(base)), other_(std::move(other)) {}

  /// Nothing when the two ways give the same bits.
  Result<std::optional<OrderFinding>> run() {
    const auto difference = first_difference(*base_.trace, *other_.trace, graph_);
    if (!difference) return std::nullopt;
    finding_.order = contrast_.order;
    finding_.audited = contrast_.audited;
    finding_.first_difference = *difference;
    finding_.entries = {base_.entry, other_.entry};
    CULPRIT_TRY(finding_.base_equal, repeats(contrast_.base, base_));
    CULPRIT_TRY(finding_.other_equal, repeats(contrast_.other, other_));
    finding_.runs = kRepeats;
    finding_.repeatable = finding_.base_equal == kRepeats && finding_.other_equal == kRepeats;
    if (finding_.repeatable) CULPRIT_CHECK(bisect());
    return std::optional{std::move(finding_)};
  }

 private:
  using Places = std::vector<std::string>;

  static RunPlan hashes_of(RunPlan plan) {
    plan.hash_only = true;
    return plan;
  }

  /// How many of kRepeats runs of a plan, the first included, have its bits.
  Result<int> repeats(const RunPlan& plan, const Made& first) {
    int equal = 1;
    for (int i = 1; i < kRepeats; ++i) {
      CULPRIT_TRY(const auto again, session_.run_again(hashes_of(plan), "evaluation order: the same plan again"));
      finding_.entries.push_back(again.entry);
      equal += !first_difference(*first.trace, *again.trace, graph_);
    }
    return equal;
  }

  Result<bool> changes(const Places& places) {
    auto plan = hashes_of(contrast_.at(contrast_, places));
    plan.name = fmt::format("{} at {} places", contrast_.other.name, places.size());
    CULPRIT_TRY(const auto made, session_.run(plan, "evaluation order: which place changes the result"));
    if (std::ranges::find(finding_.entries, made.entry) == finding_.entries.end()) finding_.entries.push_back(made.entry);
    return first_difference(*base_.trace, *made.trace, graph_).has_value();
  }

  /// The least i in (low, high] for which `changed(i)` is `wanted`, given that it is at `high` and not at `low`; of several borders one.
  template <class Changed>
  static Result<std::size_t> border(std::size_t low, std::size_t high, bool wanted, Changed&& changed) {
    while (high - low > 1) {
      const auto middle = low + (high - low) / 2;
      CULPRIT_TRY(const bool seen, changed(middle));
      (seen == wanted ? high : low) = middle;
    }
    return high;
  }

  Places between(std::size_t begin, std::size_t end) const {
    return {contrast_.places.begin() + static_cast<std::ptrdiff_t>(begin), contrast_.places.begin() + static_cast<std::ptrdiff_t>(end)};
  }

  Result<void> bisect() {
    const auto& places = contrast_.places;
    // The first n places together change nothing for n = 0, and something for all of them.
    CULPRIT_TRY(const bool all, changes(places));
    if (!all) return {};  // such as a way that differs elsewhere too
    CULPRIT_TRY(const auto count, border(0, places.size(), true, [&](std::size_t n) { return changes(between(0, n)); }));
    const auto last = count - 1;
    CULPRIT_TRY(const bool alone, changes({places[last]}));
    finding_.place = places[last];
    if (!alone) {  // some places before it are needed: from which on?
      CULPRIT_TRY(const auto from, border(0, last, false, [&](std::size_t n) { return changes(between(n, last + 1)); }));
      finding_.together_from = places[from - 1];
      return {};
    }
    CULPRIT_CHECK(find_end(last));
    return find_steps();
  }

  // At the end of a step everything is evaluated anyway, so late places change nothing: from which on?
  Result<void> find_end(std::size_t first) {
    const auto& places = contrast_.places;
    if (contrast_.at != evaluated_at || first + 1 == places.size()) return {};
    CULPRIT_TRY(const bool at_end, changes({places.back()}));
    if (at_end) return {};
    CULPRIT_TRY(const auto end, border(first, places.size() - 1, false, [&](std::size_t n) { return changes({places[n]}); }));
    finding_.until = places[end];
    return {};
  }

  Result<void> find_steps() {
    if (contrast_.at != evaluated_at) return {};
    for (int step = 0; step < steps_of(contrast_.base); ++step) {
      CULPRIT_TRY(const bool changed, changes({fmt::format("{}@{}", finding_.place, step)}));
      if (changed) finding_.steps.push_back(step);
    }
    return {};
  }

  Session& session_;
  const Graph& graph_;
  const Contrast& contrast_;
  Made base_, other_;
  OrderFinding finding_;
};

/// Where a sync of this kind acts: after each node, or after the last of each layer.
std::vector<std::string> places_of(const Graph& graph, Sync sync) {
  std::vector<std::string> places;
  const auto& nodes = graph.nodes();
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (sync != Sync::each_layer || (i + 1 < nodes.size() && nodes[i + 1].layer != nodes[i].layer)) places.push_back(nodes[i].output);
  return places;
}

std::vector<std::string> all_taps(const Graph& graph) { return places_of(graph, Sync::each_op); }

class Orders {
 public:
  Orders(Session& session, const Graph& graph, const Exploration& exploration)
      : session_(session), graph_(graph), exploration_(exploration) {}

  Result<std::vector<OrderFinding>> run() {
    const auto* base = exploration_.find(kBase);
    if (base == nullptr) return std::move(findings_);
    std::vector<const AuditedRun*> others;
    for (const auto& run : exploration_.runs)
      if (run.arm.plan.sync != Sync::lazy) others.push_back(&run);
    for (const auto* other : others) {
      CULPRIT_CHECK(search(by_evaluation(base->arm.plan, other->arm.plan, true), base->made, other->made));
      if (is_unrepeatable()) return std::move(findings_);
    }
    CULPRIT_TRY(const auto light, session_.run(with_logits_only(base->arm.plan), "evaluation order: only the logits recorded"));
    for (const auto* other : others) {
      CULPRIT_TRY(const auto made, session_.run(with_logits_only(other->arm.plan), "evaluation order: only the logits recorded"));
      if (!first_difference(*light.trace, *base->made.trace, graph_) && !first_difference(*made.trace, *other->made.trace, graph_))
        continue;  // as the audited runs, which were compared
      CULPRIT_CHECK(search(by_evaluation(with_logits_only(base->arm.plan), with_logits_only(other->arm.plan), false), light, made));
      if (is_unrepeatable()) return std::move(findings_);
    }
    const Contrast recording{"recording", with_logits_only(base->arm.plan), base->arm.plan, all_taps(graph_), recorded_at, false};
    CULPRIT_CHECK(search(recording, light, base->made));
    return std::move(findings_);
  }

 private:
  static RunPlan with_logits_only(RunPlan plan) {
    plan.capture = {kLogits};
    plan.hash_only = true;
    plan.name += ", only logits recorded";
    return plan;
  }

  Contrast by_evaluation(RunPlan base, RunPlan other, bool audited) const {
    const auto sync = other.sync;
    return {std::string(name_of(sync)) + (audited ? "" : ", only logits recorded"),
            std::move(base),
            std::move(other),
            places_of(graph_, sync),
            evaluated_at,
            audited};
  }

  Result<void> search(const Contrast& contrast, const Made& base, const Made& other) {
    CULPRIT_TRY(auto finding, Search(session_, graph_, contrast, base, other).run());
    if (finding) findings_.push_back(*std::move(finding));
    return {};
  }

  // Of runs that differ from themselves nothing can be said that depends on order.
  bool is_unrepeatable() const { return !findings_.empty() && !findings_.back().repeatable; }

  Session& session_;
  const Graph& graph_;
  const Exploration& exploration_;
  std::vector<OrderFinding> findings_;
};

}  // namespace

Result<std::vector<OrderFinding>> order_findings(Session& session, const Graph& graph, const Exploration& exploration,
                                                 const std::function<void(const std::string&)>& progress) {
  if (progress) progress("comparing orders of evaluation");
  return Orders(session, graph, exploration).run();
}

std::string to_text(const OrderFinding& finding) {
  const bool recording = finding.order == "recording";
  const auto against = recording ? std::string("all taps recorded against the logits alone") : finding.order + " against lazy";
  const auto counts =
      fmt::format("{} of {} runs of the one, {} of {} of the other", finding.base_equal, finding.runs, finding.other_equal, finding.runs);
  if (!finding.repeatable)
    return fmt::format("results are not repeatable ({}; equal bit for bit: {}): nothing follows about the order of evaluation", against,
                       counts);
  auto text = fmt::format("result depends on {} ({})", recording ? "what is recorded" : "evaluation order", against);
  const auto verb = recording ? "recording" : "evaluating";
  if (!finding.together_from.empty())
    text += fmt::format(": {} {} changes it when {} and those between were too", verb, finding.place, finding.together_from);
  else if (!finding.place.empty())
    text += fmt::format(": {} {}{} changes it", verb, finding.place, finding.until.empty() ? "" : " before " + finding.until);
  if (!finding.steps.empty()) text += fmt::format(", at step {} alone", fmt::join(finding.steps, " or "));
  return text + fmt::format("; {} differs first; repeatable: {}; this does not prove a race", finding.first_difference, counts);
}

}  // namespace culprit
