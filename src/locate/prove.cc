#include "locate/prove.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <tuple>

namespace culprit {
namespace {

/// Corrupted outputs of `op` in a run, and of any other op.
struct Corruption {
  std::int64_t outputs = 0, others = 0;
  int first_layer = 1 << 30;
};
Corruption corruption_of(const AuditedRun& run, const Graph& graph, Op op) {
  Corruption seen;
  for (const auto& audited : run.report.ops) {
    if (audited.judgement != Judgement::corruption) continue;
    const auto& node = graph.nodes()[static_cast<std::size_t>(audited.node)];
    if (node.op != op) {
      ++seen.others;
      continue;
    }
    ++seen.outputs;
    seen.first_layer = std::min(seen.first_layer, node.layer);
  }
  return seen;
}

using BadPlace = std::tuple<int, int, int, int, int>;  // step, node, row, head, token
std::set<BadPlace> bad_places(const AuditedRun& run, const Graph& graph, Op op, int layer) {
  std::set<BadPlace> bad;
  for (const auto& audited : run.report.ops) {
    const auto& node = graph.nodes()[static_cast<std::size_t>(audited.node)];
    if (node.op != op || node.layer != layer) continue;
    for (const auto& cell : audited.cells)
      if (cell.over > 0) bad.insert({audited.step, audited.node, cell.row, cell.head, cell.token});
  }
  return bad;
}

/// Elements at `bad` in which two traces agree bit for bit, and all of them.
Result<std::pair<std::int64_t, std::int64_t>> equal_elements(const Trace& expected, const Trace& actual, const Graph& graph,
                                                             const std::set<BadPlace>& bad) {
  std::int64_t equal = 0, all = 0;
  for (const auto& [step, node, row, head, token] : bad) {
    const auto& tap = graph.nodes()[static_cast<std::size_t>(node)].output;
    const auto* in_expected = expected.find(step, tap);
    const auto* in_actual = actual.find(step, tap);
    if (in_expected == nullptr || in_actual == nullptr) return fail("never-run", fmt::format("{} was not recorded at step {}", tap, step));
    const auto values = [&](const Trace& trace, const TapRecord& record) -> Result<Tensor> {
      CULPRIT_TRY(auto tensor, trace.tensor(record));
      tensor = tensor.sliced(0, row, row + 1);
      if (head >= 0) tensor = tensor.sliced(1, head, head + 1);
      return tensor.sliced(tensor.rank() - 2, token, token + 1).contiguous();
    };
    CULPRIT_TRY(const auto x, values(expected, *in_expected));
    CULPRIT_TRY(const auto y, values(actual, *in_actual));
    const auto size = size_of(x.dtype());
    for (std::int64_t i = 0; i < x.count(); ++i)
      equal += std::memcmp(x.contiguous_bytes().data() + static_cast<std::size_t>(i) * size,
                           y.contiguous_bytes().data() + static_cast<std::size_t>(i) * size, size) == 0;
    all += x.count();
  }
  return std::pair{equal, all};
}

RunPlan with(RunPlan plan, Intervention::Kind kind, const std::vector<std::string>& taps) {
  plan = with_interventions(std::move(plan), kind, taps);
  plan.name += kind == Intervention::Kind::keep ? " + keep" : " + exact";
  return plan;
}

bool can_keep(const Session& session) {
  const auto offered = session.hello().find("interventions");
  return offered != session.hello().end() && offered->is_array() && std::ranges::find(*offered, Json("keep")) != offered->end();
}

/// Making an output right also evaluates it, at another time than the engine would, and keeps its inputs alive. Handing the engine's own
/// output back does all of that and changes no value: what it changes, the patch changes too, whoever is guilty.
Result<void> try_control(Session& session, const Model& model, UsedWeights& weights, const ProofRequest& request, Proof& proof) {
  if (!can_keep(session)) {
    proof.evidence.push_back({"no control of the patch: the engine does not offer to hand an output back unchanged", {}, Rule::control});
    return {};
  }
  Arm arm = request.bad->arm;
  arm.plan = with(arm.plan, Intervention::Kind::keep, request.taps);
  CULPRIT_TRY(const auto kept, session.run(arm.plan, "control: the guilty op's own outputs brought to the host and handed back"));
  std::int64_t equal = 0, all = 0;
  std::string first;
  for (const auto& record : request.bad->made.trace->records()) {
    const auto* other = kept.trace->find(record.step, record.tap);
    const bool same = other != nullptr && other->hash == record.hash;
    if (!same && first.empty()) first = fmt::format("{}@{}", record.tap, record.step);
    equal += same;
    ++all;
  }
  const std::vector<int> entries = {request.bad->made.entry, kept.entry};
  const std::vector<Contrast> contrasts = {{request.bad->made.entry, kept.entry, "interventions"}};
  const auto what = fmt::format("control: arm '{}' with the outputs of {} handed back as the engine made them", request.bad->arm.name,
                                name_of(request.op));
  if (equal == all) {
    proof.evidence.push_back(
        {fmt::format("{}: all {} recorded tensors equal bit for bit", what, all), entries, Rule::control, true, contrasts});
    return {};
  }
  CULPRIT_TRY(const auto reports, audit(model, weights, {kept.trace.get()}, audit_options(session.hello())));
  const AuditedRun audited{arm, kept, reports.front()};
  const auto before = corruption_of(*request.bad, model.graph(), request.op), after = corruption_of(audited, model.graph(), request.op);
  proof.undisturbed = after.outputs == before.outputs;
  proof.evidence.push_back({fmt::format("{}: {} of {} recorded tensors differ, first {}; {} outputs outside their bound instead of {}{}",
                                        what, all - equal, all, first, after.outputs, before.outputs,
                                        proof.undisturbed ? ""
                                                          : ": the patch changes the defect by when it evaluates, so that it is gone with "
                                                            "the op made right does not show that the op is wrong"),
                            entries, Rule::control, proof.undisturbed, contrasts});
  return {};
}

Result<void> try_sufficiency(Session& session, const Model& model, UsedWeights& weights, const ProofRequest& request, Proof& proof) {
  Arm patched_arm = request.bad->arm;
  patched_arm.plan = with(patched_arm.plan, Intervention::Kind::exact, request.taps);
  CULPRIT_TRY(const auto patched,
              run_and_audit(session, model, weights, patched_arm, "sufficiency: the bad arm with only the guilty op made right"));
  const auto before = corruption_of(*request.bad, model.graph(), request.op);
  const auto after = corruption_of(patched, model.graph(), request.op);
  proof.sufficient = before.outputs > 0 && after.outputs == 0;
  proof.evidence.push_back(
      {fmt::format("sufficient: arm '{}' with only {} made right: {} of its outputs outside their bound instead of {}{}",
                   request.bad->arm.name, name_of(request.op), after.outputs, before.outputs,
                   after.others > 0 ? fmt::format("; {} outputs of other ops stay wrong", after.others) : ""),
       {request.bad->made.entry, patched.made.entry},
       Rule::sufficiency,
       proof.sufficient,
       {{request.bad->made.entry, patched.made.entry, "interventions"}}});
  proof.patched = patched;
  if (request.partner == nullptr) return {};

  Arm partner_arm = request.partner->arm;
  partner_arm.plan = with(partner_arm.plan, Intervention::Kind::exact, request.taps);
  CULPRIT_TRY(const auto partner, session.run(partner_arm.plan, "sufficiency: the other arm of the relation, patched alike"));
  CULPRIT_TRY(const auto broken,
              relate(session.ledger(), "", request.partner->made, request.partner->arm.plan, request.bad->made, request.bad->arm.plan));
  CULPRIT_TRY(const auto mended, relate(session.ledger(), "", partner, partner_arm.plan, patched.made, patched_arm.plan));
  Claim claim{fmt::format("'{}' against '{}': {}; both patched: {}", request.partner->arm.name, request.bad->arm.name, to_text(broken),
                          to_text(mended)),
              {request.partner->made.entry, request.bad->made.entry, partner.entry, patched.made.entry},
              Rule::relation};
  if (broken.refused.empty()) claim.contrasts.push_back({request.partner->made.entry, request.bad->made.entry, broken.factor});
  if (mended.refused.empty()) claim.contrasts.push_back({partner.entry, patched.made.entry, mended.factor});
  // A patch that leaves the bad arm as far from a right one as it was has removed something else. Two arms that are wrong alike need not
  // differ in the first place, and where another op is wrong too the distance may be its doing.
  const auto of_partner = corruption_of(*request.partner, model.graph(), request.op);
  const bool partner_is_right = of_partner.outputs == 0 && of_partner.others == 0 && after.others == 0;
  if (partner_is_right && broken.refused.empty() && mended.refused.empty()) {
    // NaN is as far as it gets.
    const double far = broken.logits_difference_max, near = mended.logits_difference_max;
    claim.holds = near < far || (std::isnan(far) && !std::isnan(near));
    proof.sufficient = proof.sufficient && claim.holds;
  }
  proof.evidence.push_back(std::move(claim));
  return {};
}

Result<void> try_necessity(Session& session, const Model& model, UsedWeights& weights, const ProofRequest& request, Proof& proof) {
  Arm good_arm = request.bad->arm;
  good_arm.plan.faults.clear();
  if (!request.right_variant.empty()) good_arm.plan.variants[std::string(name_of(request.op))] = request.right_variant;
  good_arm.plan.name += " good";
  const auto good_is_bad = request.planted.empty() && request.right_variant.empty();
  if (good_is_bad) {
    proof.evidence.push_back(
        {fmt::format("necessity was not tried: the engine offers no right variant of {} into which the fault could be put",
                     name_of(request.op)),
         {},
         Rule::necessity,
         false});
    return {};
  }
  CULPRIT_TRY(const auto good, run_and_audit(session, model, weights, good_arm, "necessity: the arm with the op right"));
  const auto clean = corruption_of(good, model.graph(), request.op);
  if (clean.outputs > 0) {
    proof.evidence.push_back({fmt::format("necessity could not be shown: the supposedly right arm has {} outputs of {} outside their bound",
                                          clean.outputs, name_of(request.op)),
                              {good.made.entry},
                              Rule::necessity,
                              false});
    return {};
  }
  Arm injected_arm = good_arm;
  injected_arm.plan.name += " + " + request.explained->text();
  injected_arm.plan.faults = {*request.explained};
  CULPRIT_TRY(const auto injected,
              run_and_audit(session, model, weights, injected_arm, "necessity: the right arm with only the explained fault"));
  const auto layer = corruption_of(*request.bad, model.graph(), request.op).first_layer;
  const auto expected = bad_places(*request.bad, model.graph(), request.op, layer);
  const auto actual = bad_places(injected, model.graph(), request.op, layer);
  CULPRIT_TRY(const auto equal, equal_elements(*request.bad->made.trace, *injected.made.trace, model.graph(), expected));
  CULPRIT_TRY(const auto factor, session.ledger().contrast(good.made.entry, injected.made.entry));
  // The right arm's own rounding may differ from that of the op that was right elsewhere in the bad arm, and a fault may carry it along (what
  // stale memory holds is an earlier output). Elements that are not equal bit for bit have to follow from the fault and this run's inputs.
  std::string predicted;
  bool same_elements = equal.first == equal.second;
  if (!same_elements) {
    CULPRIT_TRY(const auto score, predict(model, weights, *request.explained, records_of(injected, model.graph(), request.op),
                                          audit_options(session.hello())));
    same_elements = score.complete();
    predicted =
        fmt::format(" (the others as the fault makes them of this arm's own values: {} of {} elements)", score.matched, score.elements);
  }
  proof.necessary = !expected.empty() && expected == actual && same_elements && factor == "faults";
  CULPRIT_TRY(const auto moved, relate(session.ledger(), "", good.made, good_arm.plan, injected.made, injected_arm.plan));
  const auto* bad_logits = request.bad->made.trace->find(request.bad->made.trace->steps() - 1, "logits");
  const auto* injected_logits = injected.made.trace->find(injected.made.trace->steps() - 1, "logits");
  const bool same_logits = bad_logits != nullptr && injected_logits != nullptr && bad_logits->hash == injected_logits->hash;
  proof.evidence.push_back(
      {fmt::format("necessary: {} into the right arm{}: the same {} of {} places go wrong in the first guilty layer, {} of {} elements "
                   "there equal the defect's bit for bit{}; "
                   "against the right arm {}{}",
                   request.explained->text(), request.right_variant.empty() ? "" : fmt::format(" (variant {})", request.right_variant),
                   actual.size(), expected.size(), equal.first, equal.second, predicted, to_text(moved),
                   same_logits ? "; the last step's logits equal those of the bad arm bit for bit" : ""),
       {request.bad->made.entry, good.made.entry, injected.made.entry},
       Rule::necessity,
       proof.necessary,
       {{good.made.entry, injected.made.entry, "faults"}}});
  return {};
}

}  // namespace

Result<Proof> prove(Session& session, const Model& model, UsedWeights& weights, const ProofRequest& request) {
  Proof proof;
  CULPRIT_CHECK(try_sufficiency(session, model, weights, request, proof));
  CULPRIT_CHECK(try_control(session, model, weights, request, proof));
  proof.sufficient = proof.sufficient && proof.undisturbed;
  if (request.explained) CULPRIT_CHECK(try_necessity(session, model, weights, request, proof));
  return proof;
}

}  // namespace culprit
