#include "report/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "locate/damage.h"
#include "locate/derivation.h"
#include "locate/evaluation_order.h"

namespace culprit {
namespace {

class Writer {
 public:
  explicit Writer(const TextOptions& options) : options_(options) {}

  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    out_ += fmt::format(format, std::forward<Args>(args)...);
    out_ += '\n';
  }
  void field(std::string_view name, const std::string& text) {
    if (!text.empty()) line("  {:<12} {}", name, text);
  }
  std::string bold(const std::string& text) const { return options_.colour ? "\x1b[1m" + text + "\x1b[0m" : text; }
  std::string take() { return std::move(out_); }

 private:
  TextOptions options_;
  std::string out_;
};

std::string runs(const std::vector<int>& entries) { return entries.empty() ? "" : fmt::format("  [{}]", runs_text(entries)); }

std::string headline(const Verdict& verdict) {
  const auto subject = fmt::format("{} on {} in {}", verdict.engine, verdict.model, verdict.dtype);
  switch (verdict.status) {
    case Status::no_divergence:
      return fmt::format("no_divergence: {}: every op that was audited is right", subject);
    case Status::inconclusive:
      return fmt::format("inconclusive: {}: {}", subject, verdict.reason);
    case Status::unsupported:
      return fmt::format("unsupported: {}: {}", subject, verdict.reason);
    case Status::engine_failure:
      return fmt::format("engine_failure: {}: {}", subject, verdict.reason);
    default:
      break;
  }
  return fmt::format("{}: {}: {} defect{}, explains {} of {}", name_of(verdict.status), subject, verdict.defects.size(),
                     verdict.defects.size() == 1 ? "" : "s", verdict.explained, verdict.defects.size());
}

std::string other_rounding(const PrecisionFinding& finding) {
  if (finding.other_rounding.empty()) return "";
  return fmt::format(" ({} instead: {:.3g})", finding.other_rounding, finding.other_effect_max);
}

std::string one_line(const Defect& defect, int number) {
  return fmt::format("  {} {} {} ({}), {}, when {}{}", number, name_of(defect.status), defect.op, fmt::join(defect.taps, ", "),
                     defect.layers, defect.condition, defect.fault.empty() ? "" : ": " + defect.fault);
}

/// 12 %; what has no number keeps its word.
std::string percent(double part, double whole = 1) { return fmt::format("{:.3g} %", 100 * part / whole); }

void write_damage(Writer& writer, const Damage& damage) {
  const auto noise = std::ranges::max(damage.taps, {}, &TapDamage::noise_relative_l2);
  writer.field("damage", fmt::format("'{}' against the same run with the op made right, which made again {}{}", damage.arm,
                                     damage.repeatable ? "is equal bit for bit"
                                                       : fmt::format("differs by {:.2g} at {}", noise.noise_relative_l2, noise.tap),
                                     runs(damage.entries)));
  writer.field("", fmt::format("{:<26} {:>11} {:>9} {:>9} {:>11}", "tap", "relative L2", "share", "elements", "elsewhere"));
  for (const auto* tap : main_taps(damage))
    writer.field("", fmt::format("{:<26} {:>11.3g} {:>9} {:>9} {:>11}", tap->tap, tap->relative_l2, percent(tap->share),
                                 percent(static_cast<double>(tap->differing), static_cast<double>(tap->elements)),
                                 tap->elsewhere_elements == 0 ? "-" : fmt::format("{:.2g}", tap->elsewhere_relative_l2)));
  const auto logits = std::ranges::find(damage.taps, "logits", &TapDamage::tap);
  if (logits == damage.taps.end()) return;
  writer.field("", fmt::format("logits differ by {:.4g} at most; argmax flips: {} of {} positions{}", logits->error_max, damage.flips,
                               damage.positions, damage.ties == 0 ? "" : fmt::format(", and {} within rounding (ties)", damage.ties)));
}

void write_defect(Writer& writer, const Defect& defect, int number) {
  writer.line("");
  writer.line("{}", writer.bold(fmt::format("defect {}: {}", number, defect.op)));
  writer.field("op", fmt::format("{} ({})", defect.op, fmt::join(defect.taps, ", ")));
  writer.field("layers", defect.layers);
  writer.field("condition", defect.condition);
  for (const auto& note : defect.condition_notes) writer.field("", note);
  writer.field("mechanism", defect.fault.empty() ? defect.mechanism : fmt::format("{}: {}", defect.fault, defect.mechanism));
  writer.field("wrong side", defect.wrong_side);
  writer.field("size", defect.numbers);
  for (const auto& score : defect.predictions) {
    if (!score.complete()) continue;
    writer.field("prediction",
                 fmt::format("{}: {} of {} changed elements as predicted ({} bit for bit), {} of {} elements in all, over {} op outputs",
                             score.fault, score.changed_matched, score.changed, score.exact, score.matched, score.elements, score.records));
  }
  for (const auto& claim : defect.evidence) writer.field("evidence", claim.text + runs(claim.entries));
  if (defect.damage) write_damage(writer, *defect.damage);
  for (const auto& claim : defect.ruled_out) writer.field("ruled out", claim.text);
  if (defect.known.empty()) writer.field("known", "no entry of the register fits");
  for (const auto& known : defect.known) writer.field("known", known);
}

}  // namespace

std::string to_text(const Verdict& verdict, const TextOptions& options) {
  Writer writer(options);
  writer.line("{}", writer.bold(headline(verdict)));
  int number = 0;
  for (const auto& defect : verdict.defects) writer.line("{}", one_line(defect, ++number));
  for (const auto& suspect : verdict.suspects) writer.line("  {}: {}", suspect.name, name_of(suspect.finding));
  for (const auto& finding : verdict.precision)
    writer.line("  precision: {} in {}: {}; moves the logits by at most {:.3g}{}", finding.op, finding.condition, finding.reason,
                finding.logits_effect_max, other_rounding(finding));
  for (const auto& finding : verdict.orders) writer.line("  {}{}", to_text(finding), runs(finding.entries));
  writer.line("  {} runs, {:.1f} s; reproduce: {}", verdict.ledger.entries().size(), verdict.seconds, verdict.reproduce);

  number = 0;
  for (const auto& defect : verdict.defects) write_defect(writer, defect, ++number);
  if (!verdict.suspects.empty()) {
    writer.line("");
    writer.line("{}", writer.bold("suspects, each tested alone"));
    for (const auto& suspect : verdict.suspects)
      writer.line("  {:<18} {:<9} {}{}", suspect.name, name_of(suspect.finding), suspect.text, runs(suspect.entries));
  }
  if (!verdict.precision.empty()) {
    writer.line("");
    writer.line("{}", writer.bold("precision"));
    for (const auto& finding : verdict.precision)
      writer.line("  {} ({}): {} elements, up to {:.3g} times the standard bound; {}; largest effect on a logit {:.3g}{}{}", finding.op,
                  finding.condition, finding.elements, finding.ratio_max, finding.reason, finding.logits_effect_max,
                  other_rounding(finding), runs(finding.entries));
  }
  writer.line("");
  writer.line("{}", writer.bold("compared"));
  for (const auto& text : verdict.compared) writer.line("  {}", text);
  writer.line("");
  writer.line("{}", writer.bold("audited (each op again in float64 from its own recorded inputs)"));
  for (const auto& s : verdict.audited)
    writer.line("  {:<18} {:>6} outputs {:>10} elements   largest error {:.3g} of the bound{}", s.name(), s.outputs, s.judged, s.ratio_max,
                s.vacuous > 0 ? fmt::format(", {} more elements not judged (vacuous bound)", s.vacuous) : "");
  writer.line("");
  writer.line("{}", writer.bold("not tested"));
  for (const auto& text : verdict.not_tested) writer.line("  {}", text);
  if (options.explain) {
    writer.line("");
    writer.line("{}", writer.bold("why these experiments"));
    for (const auto& text : verdict.decisions) writer.line("  {}", text);
  }
  return writer.take();
}

}  // namespace culprit
