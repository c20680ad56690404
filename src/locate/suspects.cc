#include "locate/suspects.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "locate/relate.h"

namespace culprit {
namespace {

bool is_cache(const Node& node, const Facts&) { return node.op == Op::cache_write; }
bool is_attention(const Node& node, const Facts&) { return node.op == Op::sdpa; }
bool has_window(const Node& node, const Facts&) { return node.op == Op::sdpa && node.window > 0; }
bool shares_keys(const Node& node, const Facts& facts) {
  return node.op == Op::sdpa && facts.kv_shared_layers > 0 && node.layer >= facts.layers - facts.kv_shared_layers;
}
bool is_matmul(const Node& node, const Facts&) { return node.op == Op::linear || node.op == Op::expert_linear; }
bool is_norm(const Node& node, const Facts&) { return node.op == Op::rms_norm || node.op == Op::l2_norm; }
bool is_qk_norm(const Node& node, const Facts&) {
  const auto role = tap_role(node.output);
  return node.op == Op::rms_norm && (role == "q_norm" || role == "k_norm");
}
bool is_activation(const Node& node, const Facts&) { return node.op == Op::swiglu || node.op == Op::geglu || node.op == Op::silu; }

bool covers(const Suspect& suspect, const Node& node, const Facts& facts) {
  return suspect.covers != nullptr ? suspect.covers(node, facts) : node.op == suspect.op;
}

std::vector<int> nodes_of(const Suspect& suspect, const Graph& graph) {
  std::vector<int> nodes;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i)
    if (covers(suspect, graph.nodes()[i], graph.facts())) nodes.push_back(static_cast<int>(i));
  return nodes;
}

/// "layers.*.role" where that is no other node than these, else their names.
std::vector<std::string> globs_of(const std::vector<int>& nodes, const Graph& graph) {
  std::vector<std::string> globs;
  const auto chosen = [&](std::size_t i) { return std::ranges::binary_search(nodes, static_cast<int>(i)); };
  for (const int index : nodes) {
    const auto& tap = graph.nodes()[static_cast<std::size_t>(index)].output;
    const auto glob = "layers.*." + tap_role(tap);
    bool whole = tap.starts_with("layers.");
    for (std::size_t i = 0; whole && i < graph.nodes().size(); ++i) whole = !glob_match(glob, graph.nodes()[i].output) || chosen(i);
    const auto& name = whole ? glob : tap;
    if (std::ranges::find(globs, name) == globs.end()) globs.push_back(name);
  }
  return globs;
}

/// What the audit says of some nodes over some runs.
struct Judged {
  std::int64_t outputs = 0, elements = 0, vacuous = 0;
  std::int64_t wrong = 0;  // outputs outside their bound
  double ratio_max = 0;
  std::vector<int> entries;  // that show it, or all when none does
};

void add(const AuditedRun& run, const std::vector<int>& nodes, Judged& judged, std::vector<int>& wrong_in) {
  bool wrong = false;
  for (const auto& op : run.report.ops) {
    if (!std::ranges::binary_search(nodes, op.node) || op.judgement == Judgement::not_tested) continue;
    ++judged.outputs;
    judged.elements += op.count - op.vacuous;
    judged.vacuous += op.vacuous;
    judged.wrong += op.judgement == Judgement::corruption;
    wrong = wrong || op.judgement == Judgement::corruption;
    if (!(op.ratio_max <= judged.ratio_max)) judged.ratio_max = op.ratio_max;
  }
  judged.entries.push_back(run.made.entry);
  if (wrong) wrong_in.push_back(run.made.entry);
}

Judged judge(const Exploration& exploration, const std::vector<int>& nodes) {
  Judged judged;
  std::vector<int> wrong_in;
  for (const auto& run : exploration.runs) add(run, nodes, judged, wrong_in);
  if (!wrong_in.empty()) judged.entries = wrong_in;
  return judged;
}

std::int64_t wrong_outputs(const AuditedRun& run) { return std::ranges::count(run.report.ops, Judgement::corruption, &OpAudit::judgement); }

Arm intervened(Arm arm, Intervention::Kind kind, const std::vector<std::string>& globs) {
  arm.plan = with_interventions(std::move(arm.plan), kind, globs);
  return arm;
}

/// The defect went with the suspect made right. If it goes as far with the suspect's own outputs handed back, which changes no value, then it
/// depends on how these lie in memory or when they are evaluated, and not on what they are.
Result<void> try_control(Session& session, const Model& model, UsedWeights& weights, const DefectRuns& defect,
                         const std::vector<std::string>& globs, std::int64_t left, SuspectOutcome& outcome) {
  auto arm = intervened(defect.bad->arm, Intervention::Kind::keep, globs);
  arm.plan.name += " + " + outcome.name + " kept";
  auto kept = run_and_audit(session, model, weights, arm, fmt::format("suspect {}: its own outputs handed back", outcome.name));
  if (!kept && kept.error().id == "not-supported") return {};
  if (!kept) return tl::unexpected(std::move(kept).error());
  const auto with_own = wrong_outputs(*kept);
  outcome.own_cure = with_own == left && with_own < wrong_outputs(*defect.bad);
  outcome.entries.push_back(kept->made.entry);
  outcome.text +=
      fmt::format("; with its own outputs handed back unchanged, {} stay{}", with_own,
                  outcome.own_cure ? ": it is how they lie in memory or when they are evaluated that matters, not what they are" : "");
  return {};
}

/// The intervention: the bad arm with the suspect alone made right, against the right one with the suspect made right too, so that one
/// factor differs in each pair.
Result<void> intervene(Session& session, const Model& model, UsedWeights& weights, const DefectRuns& defect,
                       const std::vector<std::string>& globs, SuspectOutcome& outcome) {
  constexpr auto kExact = Intervention::Kind::exact;
  auto bad_arm = intervened(defect.bad->arm, kExact, globs), right_arm = intervened(defect.right->arm, kExact, globs);
  bad_arm.plan.name += " + " + outcome.name + " right";
  right_arm.plan.name += " + " + outcome.name + " right";
  CULPRIT_TRY(const auto bad,
              run_and_audit(session, model, weights, bad_arm, fmt::format("suspect {}: it alone made right", outcome.name)));
  CULPRIT_TRY(const auto right, session.run(right_arm.plan, fmt::format("suspect {}: it and what is guilty made right", outcome.name)));
  CULPRIT_TRY(const auto before,
              relate(session.ledger(), "", defect.right->made, defect.right->arm.plan, defect.bad->made, defect.bad->arm.plan));
  CULPRIT_TRY(const auto after, relate(session.ledger(), "", right, right_arm.plan, bad.made, bad_arm.plan));
  const auto left = wrong_outputs(bad), all = wrong_outputs(*defect.bad);
  outcome.stays = left == all && after.refused.empty() && after.logits_difference_max != 0;
  outcome.text +=
      fmt::format("; it alone made right, {} of {} wrong outputs of other ops stay; to the run without the defect {}, before {}", left, all,
                  to_text(after), to_text(before));
  outcome.entries.insert(outcome.entries.end(), {defect.bad->made.entry, defect.right->made.entry, bad.made.entry, right.entry});
  return outcome.stays ? Result<void>{} : try_control(session, model, weights, defect, globs, left, outcome);
}

}  // namespace

std::vector<Suspect> all_suspects() {
  std::vector<Suspect> all = {
      {"cache", "every write into the key and value caches", is_cache},
      {"attention", "scaled dot-product attention", is_attention},
      {"mask", "attention, which the mask acts on", is_attention},
      {"window", "attention of layers with a sliding window", has_window},
      {"kv_sharing", "attention of layers that read another layer's keys and values", shares_keys},
      {"matmul", "every product with a weight matrix", is_matmul},
      {"quantized_matmul", "every product with a weight matrix; packed ones where the checkpoint has them", is_matmul},
      {"norm", "every norm", is_norm},
      {"qk_norm", "norms of queries and keys", is_qk_norm},
      {"activation", "activations of the MLP", is_activation},
  };
  for (const auto op : all_ops()) all.push_back({std::string(name_of(op)), fmt::format("every {}", name_of(op)), nullptr, op});
  return all;
}

Result<std::vector<Suspect>> parse_suspects(std::string_view text, const Graph& graph) {
  const auto known = all_suspects();
  std::vector<Suspect> chosen;
  const auto choose = [&](const Suspect& suspect) {
    if (std::ranges::find(chosen, suspect.name, &Suspect::name) == chosen.end()) chosen.push_back(suspect);
  };
  while (!text.empty()) {
    const auto comma = text.find(',');
    const auto name = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    if (name == "all") {
      for (const auto& suspect : known)
        if (suspect.covers == nullptr && !nodes_of(suspect, graph).empty()) choose(suspect);
      continue;
    }
    const auto found = std::ranges::find(known, name, &Suspect::name);
    if (found == known.end()) {
      std::vector<std::string_view> names = {"all"};
      for (const auto& suspect : known) names.push_back(suspect.name);
      const auto close = nearest(name, names);
      return fail("suspect-unknown", fmt::format("there is no suspect '{}'{}; expected some of {}", name,
                                                 close.empty() ? "" : fmt::format("; did you mean {}?", close), fmt::join(names, ", ")));
    }
    choose(*found);
  }
  return chosen;
}

Result<std::vector<SuspectOutcome>> test_suspects(Session& session, const Model& model, UsedWeights& weights,
                                                  const Exploration& exploration, const DefectRuns& defect,
                                                  const std::vector<Suspect>& suspects) {
  std::vector<SuspectOutcome> outcomes;
  for (const auto& suspect : suspects) {
    SuspectOutcome outcome;
    outcome.name = suspect.name;
    const auto nodes = nodes_of(suspect, model.graph());
    if (nodes.empty()) {
      outcome.text = fmt::format("{}: this model has none", suspect.what);
      outcomes.push_back(std::move(outcome));
      continue;
    }
    const auto judged = judge(exploration, nodes);
    outcome.entries = judged.entries;
    outcome.text = fmt::format("{}: {} of {} outputs ({} elements) outside their bound, largest error {:.3g} of it{}", suspect.what,
                               judged.wrong, judged.outputs, judged.elements, judged.ratio_max,
                               judged.vacuous == 0 ? "" : fmt::format(" ({} more elements whose bound says nothing)", judged.vacuous));
    if (judged.wrong > 0) {
      outcome.finding = SuspectOutcome::Finding::charged;
    } else if (judged.elements > 0) {
      outcome.finding = SuspectOutcome::Finding::cleared;
      if (defect.bad != nullptr && defect.right != nullptr) {
        CULPRIT_CHECK(intervene(session, model, weights, defect, globs_of(nodes, model.graph()), outcome));
        if (!outcome.stays && !outcome.own_cure) outcome.finding = SuspectOutcome::Finding::unsettled;
      }
    }
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

}  // namespace culprit
