#include "locate/derivation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/fields.h"

namespace culprit {
namespace {

Error not_derived(std::string why) { return {"not-derived", std::move(why), {}}; }

Result<Claim> claim_from_json(const Json& json) {
  Claim claim;
  std::string rule;
  Fields fields(json, "claim", "verdict-invalid");
  fields.required("claim", claim.text).required("rule", rule).required("holds", claim.holds).required("runs", claim.entries);
  const auto* contrasts = fields.find("contrasts");
  CULPRIT_CHECK(fields.done());
  CULPRIT_TRY(claim.rule, parse_rule(rule));
  if (contrasts == nullptr) return claim;
  if (!contrasts->is_array()) return fail("verdict-invalid", "claim: contrasts is no list");
  for (const auto& item : *contrasts) {
    Contrast contrast;
    Fields parts(item, "contrast", "verdict-invalid");
    parts.required("expected", contrast.expected).required("actual", contrast.actual).required("factor", contrast.factor);
    CULPRIT_CHECK(parts.done());
    claim.contrasts.push_back(std::move(contrast));
  }
  return claim;
}

std::optional<Error> refusal(const Ledger& ledger, const Claim& claim) {
  for (const int run : claim.entries)
    if (const auto made = ledger.entry(run); !made) return made.error();
  for (const auto& contrast : claim.contrasts) {
    const auto factor = ledger.contrast(contrast.expected, contrast.actual);
    if (!factor) return factor.error();
    if (*factor != contrast.factor)
      return Error{"confounded",
                   fmt::format("runs {} and {} differ in {}, not in {}", contrast.expected, contrast.actual, *factor, contrast.factor),
                   {}};
  }
  return std::nullopt;
}

struct Document {
  const Json& json;
  [[nodiscard]] Result<std::string> text(const Json& from, const char* key) const {
    const auto found = from.find(key);
    if (found == from.end() || !found->is_string()) return fail("verdict-invalid", fmt::format("it has no text '{}'", key));
    return found->get<std::string>();
  }
  [[nodiscard]] Result<const Json*> list(const Json& from, const char* key) const {
    const auto found = from.find(key);
    if (found == from.end() || !found->is_array()) return fail("verdict-invalid", fmt::format("it has no list '{}'", key));
    return &*found;
  }
};

bool shown(const Derivation& derivation, Rule rule) {
  return std::ranges::any_of(derivation.steps, [&](const DerivationStep& step) {
    return step.claim.rule == rule && step.claim.holds && !step.refused && !(step.claim.entries.empty() && rule != Rule::control);
  });
}
bool failed(const Derivation& derivation, Rule rule) {
  return std::ranges::any_of(derivation.steps,
                             [&](const DerivationStep& step) { return step.claim.rule == rule && (!step.claim.holds || step.refused); });
}

/// What each status takes: an audit; for an explanation, a model whose prediction is whole; for a proof, all of sufficiency, its control and
/// necessity, with no relation or control against it.
std::optional<Error> check_status(const Derivation& derivation, const Json& defect, const std::string& status) {
  if (!shown(derivation, Rule::audit)) return not_derived("no audit shows the op outside its bound");
  if (status == "localised") return std::nullopt;
  const auto fault = defect.at("fault").get<std::string>();
  const bool is_load = defect.at("op") == "load";  // its tensors are compared with the checkpoint's, all of them
  bool predicted = is_load && !fault.empty();
  if (const auto scores = defect.find("predictions"); scores != defect.end() && scores->is_array())
    for (const auto& score : *scores)
      predicted = predicted || (score.is_object() && score.contains("fault") && score.at("fault") == fault && score.contains("complete") &&
                                score.at("complete") == true);
  if (!predicted) return not_derived(fmt::format("no prediction of '{}' is whole", fault));
  if (status == "explained") return std::nullopt;
  if (!shown(derivation, Rule::sufficiency) || failed(derivation, Rule::sufficiency)) return not_derived("sufficiency was not shown");
  if (!is_load && (!shown(derivation, Rule::control) || failed(derivation, Rule::control)))
    return not_derived("the patch has no control that holds");
  if (failed(derivation, Rule::relation)) return not_derived("a relation between arms is not mended by the patch");
  if (!shown(derivation, Rule::necessity) || failed(derivation, Rule::necessity)) return not_derived("necessity was not shown");
  return std::nullopt;
}

Result<Derivation> derive_defect(const Document& document, const Ledger& ledger, const Json& defect, std::size_t number) {
  if (!defect.is_object()) return fail("verdict-invalid", "a defect is no object");
  CULPRIT_TRY(const auto status, document.text(defect, "status"));
  CULPRIT_TRY(const auto op, document.text(defect, "op"));
  CULPRIT_TRY(const auto condition, document.text(defect, "condition"));
  CULPRIT_TRY(const auto fault, document.text(defect, "fault"));
  CULPRIT_TRY(const auto* evidence, document.list(defect, "evidence"));
  Derivation derivation;
  derivation.conclusion = fmt::format("defect {}: {} {}, when {}{}", number, status, op, condition, fault.empty() ? "" : ": " + fault);
  for (const auto& item : *evidence) {
    CULPRIT_TRY(auto claim, claim_from_json(item));
    auto refused = refusal(ledger, claim);
    derivation.steps.push_back({std::move(claim), std::move(refused)});
  }
  derivation.refused = check_status(derivation, defect, status);
  return derivation;
}

/// Nothing was found: the runs must have been able to show something.
Derivation derive_nothing(const Ledger& ledger, const Json& document) {
  Derivation derivation;
  derivation.conclusion = "no_divergence: every op that was audited is right";
  std::vector<int> runs;
  for (const auto& entry : ledger.entries()) runs.push_back(entry.id);
  const auto audited = document.find("audited");
  if (runs.empty() || audited == document.end() || !audited->is_array() || audited->empty())
    derivation.refused = not_derived("nothing was audited");
  for (const auto& ability : abilities()) {
    DerivationStep step;
    step.claim.text = fmt::format("some run has {}", ability.what);
    step.claim.rule = Rule::audit;
    if (const auto can = ledger.can_show(runs, ability); !can) step.refused = can.error();
    for (const auto& entry : ledger.entries())
      if (ability.has(entry.plan)) step.claim.entries.push_back(entry.id);
    derivation.steps.push_back(std::move(step));
  }
  return derivation;
}

/// Settings of a run that are not the default of their factor.
std::string settings(const Entry& entry) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : factors(entry)) {
    if (name.starts_with("tokens.") || name == "model" || name == "engine" || name == "dtype") continue;
    const bool usual = value.empty() || (name == "cache" && value == "concat") || (name == "evaluation" && value == "lazy") ||
                       (name == "restored" && value == "never") || (name == "spare slots" && value == "0") ||
                       (name == "weights" && value == "culprit");
    if (!usual) parts.push_back(fmt::format("{}: {}", name, value));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

std::string runs_text(const std::vector<int>& entries) {
  if (entries.empty()) return "no run";
  if (entries.size() > 8) return fmt::format("runs {}, .. {}: {} in all", entries.front(), entries.back(), entries.size());
  return fmt::format("run{} {}", entries.size() == 1 ? "" : "s", fmt::join(entries, ", "));
}

bool Derivation::holds() const {
  return !refused && std::ranges::none_of(steps, [](const DerivationStep& step) { return step.refused.has_value(); });
}

Result<VerdictReading> read_verdict(const Json& json) {
  const Document document{json};
  if (!json.is_object() || !json.contains("schema") || json.at("schema") != "culprit-verdict")
    return fail("verdict-invalid", "expected a document of culprit find --json");
  if (!json.contains("version") || json.at("version") != Verdict::kSchemaVersion)
    return fail("verdict-invalid", fmt::format("expected version {} of the schema", Verdict::kSchemaVersion));
  VerdictReading reading;
  CULPRIT_TRY(const auto* runs, document.list(json, "runs"));
  CULPRIT_TRY(reading.ledger, Ledger::from_json(*runs));
  CULPRIT_TRY(const auto* defects, document.list(json, "defects"));
  CULPRIT_TRY(const auto verdict, document.text(json, "verdict"));
  CULPRIT_TRY(const auto* decisions, document.list(json, "decisions"));
  for (const auto& decision : *decisions) reading.decisions.push_back(decision.is_string() ? decision.get<std::string>() : decision.dump());
  for (const auto& defect : *defects) {
    CULPRIT_TRY(auto derivation, derive_defect(document, reading.ledger, defect, reading.derivations.size() + 1));
    reading.derivations.push_back(std::move(derivation));
  }
  if (verdict == "no_divergence") reading.derivations.push_back(derive_nothing(reading.ledger, json));
  return reading;
}

std::string to_text(const VerdictReading& reading) {
  std::string out;
  std::set<int> cited;
  for (const auto& derivation : reading.derivations) {
    out += fmt::format("{}{}\n", derivation.conclusion, derivation.holds() ? "" : "  REFUSED");
    if (derivation.refused) out += fmt::format("  refused      {}: {}\n", derivation.refused->id, derivation.refused->message);
    for (const auto& step : derivation.steps) {
      out += fmt::format("  {:<12} {}  [{}]\n", name_of(step.claim.rule), step.claim.text, runs_text(step.claim.entries));
      if (!step.claim.holds) out += "               not shown\n";
      if (step.refused) out += fmt::format("               refused: {}: {}\n", step.refused->id, step.refused->message);
      for (const auto& contrast : step.claim.contrasts)
        out += fmt::format("               runs {} and {} differ in {} only\n", contrast.expected, contrast.actual, contrast.factor);
      if (step.claim.entries.size() <= 8) cited.insert(step.claim.entries.begin(), step.claim.entries.end());
    }
  }
  if (!cited.empty()) out += "\nruns that are cited\n";
  for (const int id : cited)
    if (const auto run = reading.ledger.entry(id))
      out += fmt::format("  {:>3} '{}' on {}, library {:.12}: {}\n      {}\n", id, (*run)->plan.name, (*run)->engine,
                         (*run)->library_sha256, (*run)->purpose, settings(**run));
  if (!reading.decisions.empty()) out += "\nwhy these experiments\n";
  for (const auto& decision : reading.decisions) out += "  " + decision + "\n";
  return out;
}

}  // namespace culprit
