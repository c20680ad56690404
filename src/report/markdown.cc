#include "report/markdown.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/fields.h"
#include "locate/derivation.h"

namespace culprit {
namespace {

/// A cell of a table holds one line, and no bar that would end it.
std::string cell(std::string text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return {};
  return found->is_string() ? found->get<std::string>() : found->dump();
}

const Json& list_at(const Json& object, const char* key) {
  static const Json none = Json::array();
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : none;
}

const Json& object_at(const Json& object, const char* key) {
  static const Json none = Json::object();
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : none;
}

std::vector<std::string> texts_at(const Json& object, const char* key) {
  std::vector<std::string> texts;
  for (const auto& item : list_at(object, key)) texts.push_back(item.is_string() ? item.get<std::string>() : item.dump());
  return texts;
}

std::vector<int> runs_at(const Json& object) {
  std::vector<int> runs;
  if (const auto found = object.find("runs"); found == object.end() || !read_json(*found, runs)) runs.clear();
  return runs;
}

std::string runs_text(const std::vector<int>& runs) {
  if (runs.size() > 8) return fmt::format("{}, .. {} ({})", runs.front(), runs.back(), runs.size());
  return fmt::format("{}", fmt::join(runs, ", "));
}

class Page {
 public:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    out_ += fmt::format(format, std::forward<Args>(args)...) + '\n';
  }
  void heading(std::string_view text) { line("\n## {}\n", text); }
  void row(const std::string& name, const std::string& value) {
    if (!value.empty()) line("| {} | {} |", name, cell(value));
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

void write_damage(Page& page, const Json& damage) {
  page.line("\nWhat is left of it behind, in arm '{}' against the same run with the operation made right:\n", text_at(damage, "arm"));
  page.line("| tap | relative L2 | largest error | elements that differ |\n|---|---|---|---|");
  for (const auto& tap : list_at(damage, "taps")) {
    if (!tap.is_object() || text_at(tap, "differing") == "0") continue;
    const auto name = text_at(tap, "tap");
    const bool first_layer = name.starts_with("layers.0.") || !name.starts_with("layers.");
    if (!first_layer && !name.ends_with(".residual")) continue;
    page.line("| `{}` | {} | {} | {} of {} |", name, text_at(tap, "relative_l2"), text_at(tap, "error_max"), text_at(tap, "differing"),
              text_at(tap, "elements"));
  }
}

void write_defect(Page& page, const Json& defect, const Derivation& derivation) {
  page.heading(derivation.conclusion);
  page.line("| | |\n|---|---|");
  page.row("operation", fmt::format("{} (`{}`)", text_at(defect, "op"), fmt::join(texts_at(defect, "taps"), "`, `")));
  page.row("layers", text_at(defect, "layers"));
  page.row("smallest condition", text_at(defect, "condition"));
  page.row("mechanism",
           fmt::format("{}{}{}", text_at(defect, "fault"), text_at(defect, "fault").empty() ? "" : ": ", text_at(defect, "mechanism")));
  page.row("which side is wrong", text_at(defect, "wrong_side"));
  page.row("size", text_at(defect, "numbers"));
  const auto known = texts_at(defect, "known");
  page.row("known", known.empty() ? "no entry of the register of known defects fits" : fmt::format("{}", fmt::join(known, "; ")));
  const auto notes = texts_at(defect, "condition_notes");
  if (!notes.empty()) page.line("\nWhere it shows, and where it does not:\n");
  for (const auto& note : notes) page.line("* {}", note);
  page.line("\n| evidence | what was seen | runs | compared |\n|---|---|---|---|");
  for (const auto& step : derivation.steps) {
    std::vector<std::string> pairs;
    for (const auto& contrast : step.claim.contrasts)
      pairs.push_back(fmt::format("{} and {}: {} only", contrast.expected, contrast.actual, contrast.factor));
    page.line("| {}{} | {}{} | {} | {} |", name_of(step.claim.rule), step.claim.holds ? "" : " (not shown)", cell(step.claim.text),
              step.refused ? cell(fmt::format(" (refused: {}: {})", step.refused->id, step.refused->message)) : "",
              runs_text(step.claim.entries), fmt::format("{}", fmt::join(pairs, "; ")));
  }
  if (derivation.refused) page.line("\n**Not derived from these runs: {}.**", derivation.refused->message);
  page.line(
      "\nPredictions of fault models:\n\n| model | elements it changes, as seen | bit for bit | elements in all, as seen "
      "|\n|---|---|---|---|");
  for (const auto& score : list_at(defect, "predictions"))
    if (score.is_object())
      page.line("| {} | {} of {} | {} | {} of {} |", cell(text_at(score, "fault")), text_at(score, "changed_matched"),
                text_at(score, "changed"), text_at(score, "changed_exact"), text_at(score, "matched"), text_at(score, "elements"));
  if (const auto damage = defect.find("damage"); damage != defect.end() && damage->is_object()) write_damage(page, *damage);
  page.line("\nRuled out:\n");
  for (const auto& claim : list_at(defect, "ruled_out"))
    if (claim.is_object()) page.line("* {}", text_at(claim, "claim"));
}

void write_suspects(Page& page, const Json& suspects) {
  if (suspects.empty()) return;
  page.heading("Suspects, each tested alone");
  page.line("| suspect | finding | what was seen | runs |\n|---|---|---|---|");
  for (const auto& suspect : suspects)
    if (suspect.is_object())
      page.line("| {} | {} | {} | {} |", text_at(suspect, "suspect"), text_at(suspect, "finding"), cell(text_at(suspect, "text")),
                runs_text(runs_at(suspect)));
}

void write_environment(Page& page, const Json& verdict, const Ledger& ledger) {
  const auto& environment = object_at(verdict, "environment");
  page.heading("Environment");
  page.line("| | |\n|---|---|");
  page.row("engine", fmt::format("{} on {}", text_at(verdict, "engine"), text_at(environment, "device")));
  page.row("library, sha256", text_at(environment, "library_sha256"));
  page.row("model", fmt::format("{} in {}", text_at(verdict, "model"), text_at(verdict, "dtype")));
  std::vector<std::string> switches;
  for (const auto& [name, value] : object_at(environment, "switches").items())
    switches.push_back(fmt::format("{}={}", name, value.is_string() ? value.get<std::string>() : value.dump()));
  page.row("switches", fmt::format("{}", fmt::join(switches, " ")));
  page.row("seed of the prompts", text_at(verdict, "seed"));
  std::set<std::string> libraries;
  for (const auto& entry : ledger.entries()) libraries.insert(entry.library_sha256);
  page.row("runs", fmt::format("{}, all on {}", ledger.entries().size(),
                               libraries.size() == 1 ? "this library" : fmt::format("{} different libraries", libraries.size())));
}

void write_runs(Page& page, const VerdictReading& reading) {
  std::set<int> cited;
  for (const auto& derivation : reading.derivations)
    for (const auto& step : derivation.steps)
      if (step.claim.entries.size() <= 8) cited.insert(step.claim.entries.begin(), step.claim.entries.end());
  if (cited.empty()) return;
  page.heading("Runs that are cited");
  page.line("| run | arm | schedule | rows | cache | base | faults | interventions |\n|---|---|---|---|---|---|---|---|");
  for (const int id : cited) {
    const auto run = reading.ledger.entry(id);
    if (!run) continue;
    auto all = factors(**run);
    page.line("| {} | {} | {} | {} | {} | {} | {} | {} |", id, cell((*run)->plan.name), cell(all["schedule"]), all["rows"],
              cell(all["cache"]), all["position base"], cell(all["faults"]), cell(all["interventions"]));
  }
}

}  // namespace

Result<std::string> markdown_of(const Json& verdict) {
  CULPRIT_TRY(const auto reading, read_verdict(verdict));
  Page page;
  page.line("# {}: {} on {} in {}", text_at(verdict, "verdict"), text_at(verdict, "engine"), text_at(verdict, "model"),
            text_at(verdict, "dtype"));
  page.line("");
  if (const auto reason = text_at(verdict, "reason"); !reason.empty()) page.line("{}\n", reason);
  page.line("Reproduce with\n\n    {}", text_at(verdict, "reproduce"));
  const auto& defects = verdict.at("defects");
  for (std::size_t i = 0; i < defects.size(); ++i) write_defect(page, defects[i], reading.derivations[i]);
  write_suspects(page, list_at(verdict, "suspects"));
  const auto& precision = list_at(verdict, "precision");
  if (!precision.empty()) {
    page.heading("Beside it: precision that is lower than the standard arithmetic");
    for (const auto& finding : precision)
      if (finding.is_object())
        page.line("* {} ({}): {}; moves a logit by at most {}", text_at(finding, "op"), text_at(finding, "condition"),
                  text_at(finding, "reason"), text_at(finding, "logits_effect_max"));
  }
  page.heading("Not tested");
  for (const auto& text : texts_at(verdict, "not_tested")) page.line("* {}", text);
  write_environment(page, verdict, reading.ledger);
  write_runs(page, reading);
  return page.take();
}

}  // namespace culprit
