#include "locate/verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "locate/evaluation_order.h"

namespace culprit {

std::string_view name_of(Status status) {
  static constexpr std::string_view kNames[] = {"no_divergence", "localised",   "explained",     "proved",
                                                "inconclusive",  "unsupported", "engine_failure"};
  return kNames[static_cast<int>(status)];
}

int Verdict::exit_code(bool fail_on_precision) const {
  switch (status) {
    case Status::no_divergence:
      return fail_on_precision && !precision.empty() ? 1 : 0;
    case Status::localised:
    case Status::explained:
    case Status::proved:
      return 1;
    case Status::inconclusive:
      return 3;
    case Status::unsupported:
    case Status::engine_failure:
      return 4;
  }
  return 4;
}

namespace {

Json to_json(const std::vector<Claim>& claims) {
  Json out = Json::array();
  for (const auto& claim : claims) {
    Json contrasts = Json::array();
    for (const auto& contrast : claim.contrasts)
      contrasts.push_back({{"expected", contrast.expected}, {"actual", contrast.actual}, {"factor", contrast.factor}});
    out.push_back({{"claim", claim.text}, {"rule", name_of(claim.rule)}, {"holds", claim.holds}, {"runs", claim.entries}});
    if (!contrasts.empty()) out.back()["contrasts"] = std::move(contrasts);
  }
  return out;
}

Json to_json(const PredictionScore& score) {
  return {{"fault", score.fault},         {"records", score.records},    {"elements", score.elements},
          {"matched", score.matched},     {"changed", score.changed},    {"changed_matched", score.changed_matched},
          {"changed_exact", score.exact}, {"complete", score.complete()}};
}

Json to_json(const Damage& damage) {
  Json taps = Json::array();
  for (const auto& tap : damage.taps)
    taps.push_back({{"tap", tap.tap},
                    {"own", tap.own},
                    {"behind", tap.behind},
                    {"places", tap.places},
                    {"elements", tap.elements},
                    {"differing", tap.differing},
                    {"error_max", json_number(tap.error_max)},
                    {"relative_l2", json_number(tap.relative_l2)},
                    {"share", json_number(tap.share)},
                    {"norm_ratio", json_number(tap.norm_ratio)},
                    {"noise_relative_l2", json_number(tap.noise_relative_l2)},
                    {"elsewhere", {{"elements", tap.elsewhere_elements}, {"relative_l2", json_number(tap.elsewhere_relative_l2)}}}});
  return {{"arm", damage.arm},
          {"reference_tap", damage.reference_tap},
          {"repeatable", damage.repeatable},
          {"taps", taps},
          {"logits", {{"positions", damage.positions}, {"flips", damage.flips}, {"ties", damage.ties}}},
          {"runs", damage.entries}};
}

Json to_json(const Defect& defect) {
  Json predictions = Json::array();
  for (const auto& score : defect.predictions) predictions.push_back(to_json(score));
  Json out = {{"status", name_of(defect.status)},
              {"op", defect.op},
              {"taps", defect.taps},
              {"layers", defect.layers},
              {"condition", defect.condition},
              {"condition_notes", defect.condition_notes},
              {"fault", defect.fault},
              {"mechanism", defect.mechanism},
              {"wrong_side", defect.wrong_side},
              {"numbers", defect.numbers},
              {"predictions", predictions},
              {"sufficient", defect.sufficient},
              {"necessary", defect.necessary},
              {"evidence", to_json(defect.evidence)},
              {"ruled_out", to_json(defect.ruled_out)},
              {"known", defect.known}};
  if (defect.damage) out["damage"] = to_json(*defect.damage);
  return out;
}

Json to_json(const BoundSummary& summary) {
  Json out = {{"op", name_of(summary.op)},      {"variant", summary.variant}, {"dtype", name_of(summary.dtype)},
              {"outputs", summary.outputs},     {"judged", summary.judged},   {"vacuous", summary.vacuous},
              {"precision", summary.precision}, {"over", summary.over},       {"ratio_max", json_number(summary.ratio_max)}};
  if (summary.rounding_seen) out["rounding_ratio_max"] = json_number(summary.rounding_ratio_max);
  return out;
}

Json to_json(const PrecisionFinding& finding) {
  return {{"op", finding.op},
          {"condition", finding.condition},
          {"reason", finding.reason},
          {"arms", finding.arms},
          {"elements", finding.elements},
          {"ratio_max", json_number(finding.ratio_max)},
          {"logits_effect_max", json_number(finding.logits_effect_max)},
          {"other_rounding", finding.other_rounding},
          {"other_effect_max", json_number(finding.other_effect_max)},
          {"runs", finding.entries}};
}

Json to_json(const OrderFinding& finding) {
  return {{"order", finding.order},
          {"text", to_text(finding)},
          {"audited", finding.audited},
          {"repeatable", finding.repeatable},
          {"repeats", {{"runs", finding.runs}, {"base_equal", finding.base_equal}, {"other_equal", finding.other_equal}}},
          {"first_difference", finding.first_difference},
          {"place", finding.place},
          {"until", finding.until},
          {"together_from", finding.together_from},
          {"steps", finding.steps},
          {"runs", finding.entries}};
}

Json to_json(const SuspectOutcome& suspect) {
  return {{"suspect", suspect.name},       {"finding", name_of(suspect.finding)},
          {"defect_stays", suspect.stays}, {"own_outputs_cure", suspect.own_cure},
          {"text", suspect.text},          {"runs", suspect.entries}};
}

Json to_json(const RelationOutcome& relation) {
  Json out = {{"relation", relation.name}, {"runs", {relation.expected, relation.actual}}};
  if (!relation.refused.empty()) {
    out["refused"] = relation.refused;
    return out;
  }
  out["factor"] = relation.factor;
  out["positions"] = relation.positions;
  out["logits_difference_max"] = json_number(relation.logits_difference_max);
  out["flips"] = relation.flips;
  out["ties"] = relation.ties;
  if (relation.first_flip)
    out["first_flip"] = {{"sequence", relation.first_flip_sequence},
                         {"position", *relation.first_flip},
                         {"expected", relation.first_flip_expected},
                         {"actual", relation.first_flip_actual},
                         {"margin", json_number(relation.first_flip_margin)}};
  return out;
}

Json to_json(const EngineFailure& failure) {
  Json out = {{"error", failure.error.id}, {"message", failure.error.message}};
  if (const auto& run = failure.run)
    out["run"] = {{"arm", run->arm},
                  {"trace", run->trace.filename().string()},
                  {"steps", run->steps},
                  {"steps_whole", run->steps_whole},
                  {"last_step", run->last_step}};
  return out;
}

}  // namespace

constexpr std::string_view kRules[] = {"observation", "audit", "sufficiency", "relation", "control", "necessity"};
std::string_view name_of(Rule rule) { return kRules[static_cast<int>(rule)]; }
Result<Rule> parse_rule(std::string_view name) {
  const auto found = std::ranges::find(kRules, name);
  if (found == std::end(kRules)) return fail("verdict-invalid", fmt::format("there is no rule '{}'", name));
  return static_cast<Rule>(found - std::begin(kRules));
}

std::string_view name_of(SuspectOutcome::Finding finding) {
  static constexpr std::string_view kNames[] = {"absent", "cleared", "charged", "unsettled"};
  return kNames[static_cast<int>(finding)];
}

Json to_json(const Verdict& verdict) {
  Json out;
  out["schema"] = "culprit-verdict";
  out["version"] = Verdict::kSchemaVersion;
  out["verdict"] = name_of(verdict.status);
  out["reason"] = verdict.reason;
  if (verdict.failure) out["failure"] = to_json(*verdict.failure);
  out["exit_code"] = verdict.exit_code();
  out["explains"] = {{"explained", verdict.explained}, {"found", verdict.defects.size()}};
  out["engine"] = verdict.engine;
  out["model"] = verdict.model;
  out["dtype"] = verdict.dtype;
  out["seed"] = verdict.seed;
  out["defects"] = Json::array();
  for (const auto& defect : verdict.defects) out["defects"].push_back(to_json(defect));
  out["suspects"] = Json::array();
  for (const auto& suspect : verdict.suspects) out["suspects"].push_back(to_json(suspect));
  out["precision"] = Json::array();
  for (const auto& finding : verdict.precision) out["precision"].push_back(to_json(finding));
  out["evaluation_order"] = Json::array();
  for (const auto& finding : verdict.orders) out["evaluation_order"].push_back(to_json(finding));
  out["relations"] = Json::array();
  for (const auto& relation : verdict.relations) out["relations"].push_back(to_json(relation));
  out["audited"] = Json::array();
  for (const auto& summary : verdict.audited) out["audited"].push_back(to_json(summary));
  out["compared"] = verdict.compared;
  out["not_tested"] = verdict.not_tested;
  out["decisions"] = verdict.decisions;
  out["environment"] = verdict.environment;
  out["runs"] = verdict.ledger.to_json();
  out["reproduce"] = verdict.reproduce;
  out["seconds"] = json_number(verdict.seconds);
  return out;
}

}  // namespace culprit
