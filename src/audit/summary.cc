#include "audit/summary.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace culprit {

std::string BoundSummary::name() const {
  const std::string kind(name_of(op));
  return variant.empty() || variant == "default" ? kind : kind + "." + variant;
}

std::vector<BoundSummary> summarise(const Graph& graph, const std::vector<const AuditReport*>& reports) {
  std::map<std::tuple<Op, std::string, DType>, BoundSummary> found;
  for (const auto* report : reports)
    for (const auto& audit : report->ops) {
      if (audit.judgement == Judgement::not_tested) continue;
      const auto op = graph.nodes()[static_cast<std::size_t>(audit.node)].op;
      auto& summary = found[{op, audit.variant, audit.dtype}];
      summary.op = op;
      summary.variant = audit.variant;
      summary.dtype = audit.dtype;
      summary.outputs += 1;
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

}  // namespace culprit
