#include "locate/precision.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <tuple>

#include "locate/relate.h"

namespace culprit {
namespace {

struct Group {
  PrecisionFinding finding;
  const AuditedRun* worst = nullptr;
  std::set<std::string> roles;
};

// What rounding alone does to the logits of the same arm: some inputs are so sensitive that any other legal arithmetic moves them far.
Result<void> measure_other_rounding(Session& session, Group& group) {
  for (const auto op : {Op::rms_norm, Op::rope, Op::sdpa}) {
    const std::string name(name_of(op)), variant = "composed";
    auto plan = group.worst->arm.plan;
    if (name == group.finding.op || plan.variants.contains(name) || !session.offers(name, variant)) continue;
    plan.variants[name] = variant;
    plan.name += " + " + name + " " + variant;
    CULPRIT_TRY(const auto other, session.run(plan, "precision: what another legal rounding does to the logits"));
    CULPRIT_TRY(const auto outcome, relate(session.ledger(), "", other, plan, group.worst->made, group.worst->arm.plan));
    group.finding.other_rounding = name + " " + variant;
    group.finding.other_effect_max = outcome.logits_difference_max;
    group.finding.entries.push_back(other.entry);
    return {};
  }
  return {};
}

// Largest change of a logit when every imprecise output of the arm is recomputed exactly.
Result<double> logits_effect(Session& session, const Graph& graph, Group& group) {
  const std::vector<std::string> roles(group.roles.begin(), group.roles.end());
  auto plan = with_interventions(group.worst->arm.plan, Intervention::Kind::exact, tap_globs(roles, graph));
  plan.name += " + exact " + group.finding.op;
  CULPRIT_TRY(const auto exact, session.run(plan, "precision: what the op's rounding does to the logits"));
  CULPRIT_TRY(const auto outcome, relate(session.ledger(), "", exact, plan, group.worst->made, group.worst->arm.plan));
  group.finding.entries = {group.worst->made.entry, exact.entry};
  return outcome.logits_difference_max;
}

}  // namespace

Result<std::vector<PrecisionFinding>> precision_findings(Session& session, const Model& model, UsedWeights&,
                                                         const Exploration& exploration) {
  const auto& graph = model.graph();
  std::map<std::tuple<std::string, std::string, std::string>, Group> groups;  // op, variant, reason
  for (const auto& run : exploration.runs)
    for (const auto& op : run.report.ops) {
      if (op.precision == 0) continue;
      const auto& node = graph.nodes()[static_cast<std::size_t>(op.node)];
      const std::string name(name_of(node.op));
      const auto variant = run.arm.plan.variants.find(name);
      auto& group = groups[{name, variant == run.arm.plan.variants.end() ? "" : variant->second, op.reason}];
      group.finding.op = name;
      if (group.finding.arms.empty() || group.finding.arms.back() != run.arm.name) group.finding.arms.push_back(run.arm.name);
      group.finding.elements += op.precision;
      group.finding.reason = op.reason;
      group.roles.insert(tap_role(node.output));
      if (group.worst != nullptr && op.standard_ratio_max <= group.finding.ratio_max) continue;
      group.finding.ratio_max = op.standard_ratio_max;
      group.worst = &run;
    }
  std::vector<PrecisionFinding> findings;
  for (auto& [key, group] : groups) {
    group.finding.condition = fmt::format("dtype {}{}", name_of(session.loaded().dtype),
                                          std::get<1>(key).empty() ? "" : fmt::format(", variant {}", std::get<1>(key)));
    CULPRIT_TRY(group.finding.logits_effect_max, logits_effect(session, graph, group));
    CULPRIT_CHECK(measure_other_rounding(session, group));
    findings.push_back(group.finding);
  }
  return findings;
}

}  // namespace culprit
