#include "audit/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace culprit {

double BoundSummary::vacuous_share() const {
  const auto all = judged + vacuous;
  return all == 0 ? 0 : static_cast<double>(vacuous) / static_cast<double>(all);
}

std::vector<BoundSummary> summarise(const Graph& graph, const std::vector<AuditReport>& reports) {
  std::map<std::tuple<Op, std::string, DType>, BoundSummary> found;
  for (const auto& report : reports)
    for (const auto& audit : report.ops) {
      if (audit.judgement == Judgement::not_tested) continue;
      const auto op = graph.nodes()[static_cast<std::size_t>(audit.node)].op;
      auto& summary = found[{op, audit.variant, audit.dtype}];
      summary.op = op;
      summary.variant = audit.variant;
      summary.dtype = audit.dtype;
      summary.judged += audit.count - audit.vacuous;
      summary.vacuous += audit.vacuous;
      summary.precision += audit.precision;
      summary.over += audit.over;
      summary.ratio_max = std::max(summary.ratio_max, audit.ratio_max);
      summary.rounding_ratio_max = std::max(summary.rounding_ratio_max, audit.rounding_ratio_max);
      summary.rounding_seen = summary.rounding_seen || audit.rounding_seen;
    }
  std::vector<BoundSummary> summaries;
  for (auto& [key, summary] : found) summaries.push_back(std::move(summary));
  return summaries;
}

std::string to_markdown(const std::vector<BoundSummary>& summaries) {
  std::string text =
      "| op | variant | dtype | elements judged | vacuous | precision | outside | largest error / bound | where one rounding dominates | "
      "|\n"
      "|---|---|---|---|---|---|---|---|---|---|\n";
  for (const auto& s : summaries) {
    const auto rounding = s.rounding_seen ? fmt::format("{:.3f}", s.rounding_ratio_max) : std::string("-");
    text += fmt::format("| {} | {} | {} | {} | {:.1f} % | {} | {} | {:.3f} | {} | {} |\n", name_of(s.op), s.variant, name_of(s.dtype),
                        s.judged, 100 * s.vacuous_share(), s.precision, s.over, s.ratio_max, rounding, s.looks_loose() ? "look again" : "");
  }
  return text;
}

}  // namespace culprit
