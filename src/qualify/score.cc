#include "qualify/score.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/fields.h"
#include "qualify/condition_text.h"

namespace culprit {
namespace {

constexpr std::string_view kOutcomes[] = {"localised", "inconclusive", "quiet", "wrong_op", "missed", "false_alarm", "failed"};

void count(ConditionScore& score, bool bad, bool covered) {
  if (bad)
    (covered ? score.bad_covered : score.bad_left_out) += 1;
  else
    (covered ? score.good_covered : score.good_left_out) += 1;
}

ConditionFit fit_of(const PlaceTest& test, const Places& places) {
  ConditionFit fit;
  struct Call {
    bool bad = false, covered = false;
  };
  std::map<int, Call> calls;
  for (std::size_t i = 0; i < places.all.size(); ++i) {
    const bool bad = places.all[i].bad, covered = test(places.all[i]);
    count(fit.places, bad, covered);
    auto& call = calls[places.calls[i]];
    call.bad = call.bad || bad;
    call.covered = call.covered || covered;
  }
  for (const auto& [number, call] : calls) count(fit.calls, call.bad, call.covered);
  return fit;
}

/// Entries of the ledger are numbered from 1 in the order in which the runs were made, and the first claim of a defect lists those whose
/// audit has the op outside its bound.
int runs_until_named(const Defect& defect) {
  if (defect.evidence.empty() || defect.evidence.front().entries.empty()) return 0;
  return std::ranges::min(defect.evidence.front().entries);
}

/// The fault of the case that can break `op`.
std::string planted_into(const QualifyCase& drawn, const std::string& op) {
  for (const auto& spec : drawn.faults) {
    const auto* entry = find_fault(spec.id);
    if (entry != nullptr && std::ranges::any_of(entry->ops, [&](Op broken) { return name_of(broken) == op; })) return spec.id;
  }
  return {};
}

NamedOp score_defect(const QualifyCase& drawn, const Defect& defect, const Truth& truth) {
  NamedOp named;
  named.op = defect.op;
  named.planted = planted_into(drawn, defect.op);
  named.accepted = defect.fault;
  named.explained = !defect.fault.empty() && truth.same_as_planted && truth.same_as_planted(defect.op, defect.fault);
  named.unsettled = defect.fault.empty() && std::ranges::any_of(defect.predictions, [&](const PredictionScore& prediction) {
                      return prediction.complete() && truth.same_as_planted && truth.same_as_planted(defect.op, prediction.fault);
                    });
  named.proved = named.explained && defect.status == Status::proved;
  named.runs = runs_until_named(defect);
  named.condition = defect.condition;
  const auto test = read_condition(defect.condition, drawn.dtype);
  named.readable = test.has_value();
  if (!test) return named;
  named.seen = fit_of(*test, truth.seen.at(defect.op));
  if (const auto unseen = truth.unseen.find(defect.op); unseen != truth.unseen.end()) named.unseen = fit_of(*test, unseen->second);
  return named;
}

void score_null(const Verdict& verdict, CaseScore& score) {
  score.outcome =
      verdict.status == Status::no_divergence && verdict.defects.empty() && verdict.orders.empty() ? Outcome::quiet : Outcome::false_alarm;
  if (score.outcome != Outcome::quiet)
    score.why = fmt::format("{}: {}", name_of(verdict.status),
                            verdict.defects.empty() ? verdict.reason : fmt::format("{} is named", fmt::join(score.named_ops, ", ")));
}

void score_fault(const Verdict& verdict, const Truth& truth, CaseScore& score) {
  const auto in = [](const std::vector<std::string>& list, const std::string& op) { return std::ranges::find(list, op) != list.end(); };
  std::vector<std::string> wrong, missing;
  for (const auto& op : score.named_ops)
    if (!in(score.changed_ops, op)) wrong.push_back(op);
  for (const auto& op : score.changed_ops)
    if (!in(score.named_ops, op)) missing.push_back(op);
  if (!wrong.empty()) {
    score.outcome = Outcome::wrong_op;
    score.why = fmt::format("{} is named, no fault changed it", fmt::join(wrong, ", "));
  } else if (!missing.empty()) {
    score.outcome = Outcome::missed;
    score.why = fmt::format("{} was changed and is not named", fmt::join(missing, ", "));
  } else if (!score.named_ops.empty()) {
    score.outcome = Outcome::localised;
  } else if (verdict.status == Status::inconclusive && truth.equal_to_clean) {
    score.outcome = Outcome::inconclusive;
    score.shows_elsewhere = truth.shows_elsewhere;
  } else {
    score.outcome = Outcome::missed;
    score.why = fmt::format("{}: {}; yet the planted runs are not the clean ones bit for bit", name_of(verdict.status), verdict.reason);
  }
}

Json to_json(const ConditionScore& score) {
  return {{"bad_covered", score.bad_covered},
          {"bad_left_out", score.bad_left_out},
          {"good_covered", score.good_covered},
          {"good_left_out", score.good_left_out}};
}
Json to_json(const ConditionFit& fit) { return {{"places", to_json(fit.places)}, {"calls", to_json(fit.calls)}}; }

Result<ConditionScore> condition_score_from(const Json& json) {
  ConditionScore score;
  Fields fields(json, "a condition's score", "json-invalid");
  fields.required("bad_covered", score.bad_covered).required("bad_left_out", score.bad_left_out);
  fields.required("good_covered", score.good_covered).required("good_left_out", score.good_left_out);
  CULPRIT_CHECK(fields.done());
  return score;
}

Result<ConditionFit> condition_fit_from(const Json& json, const char* key) {
  ConditionFit fit;
  CULPRIT_TRY(const auto both, get_field<Json>(json, key, "named"));
  CULPRIT_TRY(const auto places, get_field<Json>(both, "places", key));
  CULPRIT_TRY(const auto calls, get_field<Json>(both, "calls", key));
  CULPRIT_TRY(fit.places, condition_score_from(places));
  CULPRIT_TRY(fit.calls, condition_score_from(calls));
  return fit;
}

Json to_json(const NamedOp& named) {
  return {{"op", named.op},
          {"planted", named.planted},
          {"accepted", named.accepted},
          {"explained", named.explained},
          {"proved", named.proved},
          {"unsettled", named.unsettled},
          {"runs", named.runs},
          {"condition", named.condition},
          {"readable", named.readable},
          {"seen", to_json(named.seen)},
          {"unseen", to_json(named.unseen)}};
}

Result<NamedOp> named_op_from(const Json& json) {
  NamedOp named;
  Fields fields(json, "named", "json-invalid");
  fields.required("op", named.op).required("planted", named.planted).required("accepted", named.accepted);
  fields.required("explained", named.explained).required("proved", named.proved);
  fields.required("unsettled", named.unsettled).required("runs", named.runs);
  fields.required("condition", named.condition).required("readable", named.readable);
  CULPRIT_CHECK(fields.done(true));
  CULPRIT_TRY(named.seen, condition_fit_from(json, "seen"));
  CULPRIT_TRY(named.unseen, condition_fit_from(json, "unseen"));
  return named;
}

}  // namespace

std::string_view name_of(Outcome outcome) { return kOutcomes[static_cast<int>(outcome)]; }

bool is_right(Outcome outcome) { return outcome == Outcome::localised || outcome == Outcome::inconclusive || outcome == Outcome::quiet; }

bool CaseScore::explained() const {
  return outcome == Outcome::localised && std::ranges::all_of(named, [](const NamedOp& op) { return op.explained; });
}

bool CaseScore::proved() const {
  return outcome == Outcome::localised && std::ranges::all_of(named, [](const NamedOp& op) { return op.proved; });
}

bool CaseScore::wrong_fault() const {
  return std::ranges::any_of(named, [](const NamedOp& op) { return !op.accepted.empty() && !op.explained; });
}

CaseScore score(const QualifyCase& drawn, const Verdict& verdict, const Truth& truth) {
  CaseScore score;
  score.name = drawn.name;
  score.status = name_of(verdict.status);
  score.precision_findings = static_cast<int>(verdict.precision.size());
  score.runs = static_cast<int>(verdict.ledger.entries().size());
  score.seconds = verdict.seconds;
  for (const auto& [op, places] : truth.seen) score.changed_ops.push_back(op);
  for (const auto& defect : verdict.defects) score.named_ops.push_back(defect.op);
  if (verdict.status == Status::engine_failure || verdict.status == Status::unsupported) {
    score.why = fmt::format("{}: {}", name_of(verdict.status), verdict.reason);
    return score;
  }
  if (drawn.is_null()) {
    score_null(verdict, score);
    return score;
  }
  score_fault(verdict, truth, score);
  for (const auto& defect : verdict.defects)
    if (truth.seen.contains(defect.op)) score.named.push_back(score_defect(drawn, defect, truth));
  if (score.outcome == Outcome::localised)
    for (const auto& named : score.named) score.runs_first = std::max(score.runs_first, named.runs);
  return score;
}

CaseScore score(const QualifyCase& drawn, const Error& error) {
  CaseScore score;
  score.name = drawn.name;
  score.status = "error";
  score.why = to_string(error);
  return score;
}

Json to_json(const CaseScore& score) {
  Json named = Json::array();
  for (const auto& op : score.named) named.push_back(to_json(op));
  return {{"case", score.name},
          {"outcome", name_of(score.outcome)},
          {"why", score.why},
          {"status", score.status},
          {"attempt", score.attempt},
          {"shows_elsewhere", score.shows_elsewhere},
          {"changed_ops", score.changed_ops},
          {"named_ops", score.named_ops},
          {"named", named},
          {"precision_findings", score.precision_findings},
          {"runs", score.runs},
          {"runs_first", score.runs_first},
          {"seconds", json_number(score.seconds)}};
}

Result<CaseScore> case_score_from_json(const Json& json) {
  CaseScore score;
  std::string outcome;
  Fields fields(json, "case", "json-invalid");
  fields.required("case", score.name).required("outcome", outcome).required("why", score.why).required("status", score.status);
  fields.required("attempt", score.attempt).required("shows_elsewhere", score.shows_elsewhere);
  fields.required("changed_ops", score.changed_ops).required("named_ops", score.named_ops);
  fields.required("precision_findings", score.precision_findings).required("runs", score.runs);
  fields.required("runs_first", score.runs_first).required("seconds", score.seconds);
  const auto* named = fields.find("named");
  CULPRIT_CHECK(fields.done());
  const auto found = std::ranges::find(kOutcomes, outcome);
  if (found == std::end(kOutcomes)) return fail("json-invalid", fmt::format("case {}: there is no outcome '{}'", score.name, outcome));
  score.outcome = static_cast<Outcome>(found - std::begin(kOutcomes));
  if (named == nullptr || !named->is_array()) return fail("json-invalid", fmt::format("case {}: expected a list 'named'", score.name));
  for (const auto& op : *named) {
    CULPRIT_TRY(score.named.emplace_back(), named_op_from(op));
  }
  return score;
}

}  // namespace culprit
