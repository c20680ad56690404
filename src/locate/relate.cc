#include "locate/relate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "arm/align.h"

namespace culprit {
namespace {

constexpr const char* kLogits = "logits";

struct TopTwo {
  std::size_t first_id = 0;
  double first = 0, second = 0;
  double margin() const { return first - second; }
};
TopTwo top_two(const std::vector<double>& logits) {
  TopTwo top;
  for (std::size_t i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[top.first_id]) top.first_id = i;
  top.first = logits[top.first_id];
  top.second = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (i != top.first_id) top.second = std::max(top.second, logits[i]);
  return top;
}

int copies(const RunPlan& plan, int sequence) { return static_cast<int>(std::ranges::count(plan.sequence_ids, sequence)); }

}  // namespace

Result<RelationOutcome> relate(const Ledger& ledger, const std::string& name, const Made& expected, const RunPlan& expected_plan,
                               const Made& actual, const RunPlan& actual_plan) {
  RelationOutcome outcome;
  outcome.name = name;
  outcome.expected = expected.entry;
  outcome.actual = actual.entry;
  const auto factor = ledger.contrast(expected.entry, actual.entry);
  if (!factor) {
    outcome.refused = factor.error().message;
    return outcome;
  }
  outcome.factor = *factor;

  const auto expected_places = places(*expected.trace, kLogits);
  int most_copies = 1;
  for (const int id : actual_plan.sequence_ids) most_copies = std::max(most_copies, copies(actual_plan, id));
  for (int copy = 0; copy < most_copies; ++copy)
    for (const auto& [key, place] : places(*actual.trace, kLogits, copy)) {
      const TokenKey there{key.first, key.second - actual_plan.position_base + expected_plan.position_base};
      const auto found = expected_places.find(there);
      if (found == expected_places.end()) continue;
      CULPRIT_TRY(const auto x, values_at(*expected.trace, found->second));
      CULPRIT_TRY(const auto y, values_at(*actual.trace, place));
      ++outcome.positions;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double difference = std::abs(x[i] - y[i]);
        if (!(difference <= outcome.logits_difference_max) && !(x[i] == y[i])) outcome.logits_difference_max = difference;
      }
      const auto first = top_two(x), second = top_two(y);
      if (first.first_id == second.first_id) continue;
      ++outcome.flips;
      if (outcome.first_flip && *outcome.first_flip <= key.second) continue;
      outcome.first_flip = key.second;
      outcome.first_flip_sequence = key.first;
      outcome.first_flip_expected = static_cast<int>(first.first_id);
      outcome.first_flip_actual = static_cast<int>(second.first_id);
      outcome.first_flip_margin = std::min(first.margin(), second.margin());
    }
  if (outcome.positions == 0) outcome.refused = "the two arms share no position";
  return outcome;
}

Result<std::vector<RelationOutcome>> relate_all(const Ledger& ledger, const Exploration& exploration) {
  std::vector<RelationOutcome> outcomes;
  for (const auto& relation : relations()) {
    const auto* expected = exploration.find(relation.expected);
    const auto* actual = exploration.find(relation.actual);
    if (expected == nullptr || actual == nullptr) continue;
    CULPRIT_TRY(auto outcome, relate(ledger, relation.name, expected->made, expected->arm.plan, actual->made, actual->arm.plan));
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

std::string to_text(const RelationOutcome& outcome) {
  if (!outcome.refused.empty()) return fmt::format("not compared: {}", outcome.refused);
  auto text = outcome.logits_difference_max == 0
                  ? fmt::format("equal over {} positions", outcome.positions)
                  : fmt::format("logits differ by {:.4g} at most over {} positions", outcome.logits_difference_max, outcome.positions);
  if (outcome.first_flip)
    text += fmt::format("; {} argmax flip{}, first at position {} ({} instead of {}, margin {:.3g})", outcome.flips,
                        outcome.flips == 1 ? "" : "s", *outcome.first_flip, outcome.first_flip_actual, outcome.first_flip_expected,
                        outcome.first_flip_margin);
  return text;
}

}  // namespace culprit
