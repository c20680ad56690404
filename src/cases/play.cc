#include "cases/play.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "arm/arms.h"
#include "decode/architecture.h"
#include "decode/facts_json.h"
#include "decode/model.h"
#include "locate/find.h"

namespace culprit {
namespace {

constexpr int kPromptLength = 6;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Result<std::filesystem::path> model_of(const Case& a_case, const Registry& registry, const std::filesystem::path& work) {
  const auto& setting = a_case.setting;
  if (!setting.model.empty()) return registry.model(setting.model);
  const auto* architecture = find_architecture(setting.architecture);
  if (architecture == nullptr) return fail("case-invalid", fmt::format("there is no architecture '{}'", setting.architecture), a_case.name);
  auto facts = architecture->tiny();
  if (setting.size == "small") facts = small_facts(facts);
  auto json = to_json(facts);
  json.merge_patch(setting.facts);
  CULPRIT_TRY(facts, facts_from_json(json));
  if (const auto fit = check_facts(facts); !fit) return fail("case-invalid", fit.error().message, a_case.name);
  const RandomModel random{.facts = facts, .seed = setting.seed, .bits = setting.bits};
  const auto folder = work / "model";
  if (setting.bits != 0)
    CULPRIT_CHECK(write_random_hf_model(folder, random));
  else
    CULPRIT_CHECK(write_random_model(folder, random));
  return folder;
}

Result<FindOptions> options_of(const Case& a_case, const Registry& registry, const PlayOptions& play) {
  const auto& setting = a_case.setting;
  FindOptions options;
  auto engine = setting.engine;
  if (!play.engine.empty() && play.engine != engine) {
    if (engine != "ref") return fail("case-invalid", fmt::format("this case is about {}", engine), a_case.name);
    engine = play.engine;
  }
  CULPRIT_TRY(options.engine, registry.engine(engine));
  CULPRIT_TRY(options.model, model_of(a_case, registry, play.work));
  options.model_name = setting.model.empty() ? setting.architecture : setting.model;
  CULPRIT_TRY(options.dtype, parse_dtype(setting.dtype));
  CULPRIT_TRY(options.cache, CacheSpec::parse(setting.cache));
  for (const auto& text : setting.faults) {
    CULPRIT_TRY(auto fault, FaultSpec::parse(text));
    options.faults.push_back(std::move(fault));
  }
  options.suspects = fmt::format("{}", fmt::join(setting.suspects, ","));
  options.proof_arm = setting.proof_arm;
  options.seed = setting.seed;
  options.work = play.work / "runs";
  options.progress = play.progress;
  if (setting.rows > 3) {
    CULPRIT_TRY(const auto model, Model::open(options.model));
    options.prompts = random_sequences(setting.rows, kPromptLength, model.facts().vocabulary, setting.seed);
  }
  return options;
}

void add(std::vector<Check>& checks, std::string what, std::string expected, std::string seen, bool holds) {
  checks.push_back({std::move(what), std::move(expected), std::move(seen), holds});
}

void check_defect(const ExpectedDefect& expected, const Defect& defect, const std::string& name, std::vector<Check>& checks) {
  add(checks, name + ": status", expected.status, std::string(name_of(defect.status)), expected.status == name_of(defect.status));
  add(checks, name + ": op", expected.op, defect.op, expected.op == defect.op);
  if (!expected.taps.empty())
    add(checks, name + ": taps", fmt::format("{}", fmt::join(expected.taps, ", ")), fmt::format("{}", fmt::join(defect.taps, ", ")),
        expected.taps == defect.taps);
  if (!expected.fault.empty()) add(checks, name + ": mechanism", expected.fault, defect.fault, expected.fault == defect.fault);
  auto condition = defect.condition;
  for (const auto& note : defect.condition_notes) condition += "\n" + note;
  for (const auto& part : expected.condition) add(checks, name + ": condition", part, defect.condition, has(condition, part));
  for (const auto& part : expected.known) {
    const bool found = std::ranges::any_of(defect.known, [&](const std::string& known) { return has(known, part); });
    add(checks, name + ": known defect", part, fmt::format("{}", fmt::join(defect.known, "; ")), found);
  }
}

void check_question(const Question& question, const Ledger& ledger, std::vector<Check>& checks) {
  const auto runs = ledger.having(question.runs);
  const std::string answer = runs ? "shown" : runs.error().id;
  add(checks, "claim: " + question.claim, question.answer,
      runs ? fmt::format("shown (runs {})", fmt::join(*runs, ", ")) : fmt::format("{}: {}", answer, runs.error().message),
      answer == question.answer);
}

void check_probe(const char* what, const ProbeVerdict& probe, std::vector<Check>& checks) {
  add(checks, fmt::format("probe of {}", what), "probe", probe.culprit.empty() ? "nothing charged" : probe.culprit,
      probe.culprit == "probe");
  add(checks, fmt::format("published control of {}", what), "refused", probe.refused.empty() ? "accepted" : "refused",
      !probe.refused.empty());
}

}  // namespace

bool Played::holds() const { return !checks.empty() && std::ranges::all_of(checks, &Check::holds); }

std::vector<Check> check_verdict(const Expected& expected, const Verdict& verdict) {
  std::vector<Check> checks;
  add(checks, "verdict", expected.verdict, std::string(name_of(verdict.status)), expected.verdict == name_of(verdict.status));
  add(checks, "defects", std::to_string(expected.defects.size()), std::to_string(verdict.defects.size()),
      expected.defects.size() == verdict.defects.size());
  for (std::size_t i = 0; i < std::min(expected.defects.size(), verdict.defects.size()); ++i)
    check_defect(expected.defects[i], verdict.defects[i], fmt::format("defect {}", i + 1), checks);
  for (const auto& [name, finding] : expected.suspects) {
    const auto found = std::ranges::find(verdict.suspects, name, &SuspectOutcome::name);
    const std::string seen = found == verdict.suspects.end() ? "not tested" : std::string(name_of(found->finding));
    add(checks, "suspect " + name, finding, seen, finding == seen);
  }
  for (const auto& question : expected.questions) check_question(question, verdict.ledger, checks);
  return checks;
}

Result<Played> play(const Case& a_case, const Registry& registry, const PlayOptions& options) {
  CULPRIT_TRY(const auto find_options, options_of(a_case, registry, options));
  Played played;
  CULPRIT_TRY(played.verdict, find(find_options));
  played.checks = check_verdict(a_case.expected, played.verdict);
  if (!a_case.setting.probe) return played;
  CULPRIT_TRY(auto keys, judge_probe({}));
  CULPRIT_TRY(auto values, judge_probe({.prefix_step = 5e-4, .token_begin = 20}));
  check_probe("keys", keys, played.checks);
  check_probe("values", values, played.checks);
  played.probes = {std::move(keys), std::move(values)};
  return played;
}

namespace {

/// Lines of at most `width` characters behind a name.
void field(std::string& out, std::string_view name, const std::string& text) {
  constexpr std::size_t kWidth = 112;
  std::size_t at = 0;
  bool first = true;
  while (at < text.size()) {
    auto end = std::min(at + kWidth, text.size());
    if (end < text.size())
      if (const auto space = text.rfind(' ', end); space != std::string::npos && space > at) end = space;
    out += fmt::format("  {:<12} {}\n", first ? name : "", text.substr(at, end - at));
    first = false;
    at = end + (end < text.size() && text[end] == ' ');
  }
}

std::string summary(const Verdict& verdict) {
  auto text = fmt::format("{}: {} on {} in {}, {} runs, {:.1f} s", name_of(verdict.status), verdict.engine, verdict.model, verdict.dtype,
                          verdict.ledger.entries().size(), verdict.seconds);
  if (!verdict.reason.empty()) text += ": " + verdict.reason;
  return text;
}

}  // namespace

std::string to_text(const Case& a_case, const Played& played) {
  auto out = fmt::format("{}: {}\n", a_case.name, a_case.title);
  field(out, "published", a_case.published.where);
  field(out, "symptom", a_case.published.symptom);
  field(out, "diagnosis", a_case.published.diagnosis);
  field(out, "wrong turn", a_case.published.turn);
  field(out, "verdict", summary(played.verdict));
  for (const auto& defect : played.verdict.defects)
    field(out, "",
          fmt::format("{} {} ({}), when {}{}", name_of(defect.status), defect.op, fmt::join(defect.taps, ", "), defect.condition,
                      defect.fault.empty() ? "" : ": " + defect.fault));
  for (const auto& suspect : played.verdict.suspects) field(out, "", fmt::format("{} {}", suspect.name, name_of(suspect.finding)));
  for (const auto& probe : played.probes) {
    field(out, "probe", probe.culprit.empty() ? "nothing charged" : "the probe is charged: it reads a strided view as if it were dense");
    for (const auto& claim : probe.evidence) field(out, "", claim.text);
    for (const auto& claim : probe.refused) field(out, "", claim.text);
  }
  field(out, "difference", a_case.difference);
  for (const auto& check : played.checks)
    field(out, check.holds ? "as expected" : "NOT SO",
          fmt::format("{}: {}{}", check.what, check.seen, check.holds ? "" : ", expected " + check.expected));
  field(out, "reproduce", played.verdict.reproduce);
  return out;
}

Json to_json(const Case& a_case, const Played& played) {
  Json checks = Json::array();
  for (const auto& check : played.checks)
    checks.push_back({{"what", check.what}, {"expected", check.expected}, {"seen", check.seen}, {"holds", check.holds}});
  Json probes = Json::array();
  for (const auto& probe : played.probes) probes.push_back({{"culprit", probe.culprit}, {"runs", probe.ledger.to_json()}});
  return {{"case", a_case.name},
          {"title", a_case.title},
          {"published",
           {{"where", a_case.published.where},
            {"symptom", a_case.published.symptom},
            {"diagnosis", a_case.published.diagnosis},
            {"turn", a_case.published.turn}}},
          {"difference", a_case.difference},
          {"holds", played.holds()},
          {"checks", std::move(checks)},
          {"probes", std::move(probes)},
          {"verdict", to_json(played.verdict)}};
}

}  // namespace culprit
