#include "locate/relate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "arm/align.h"
#include "compare/near_tie.h"
#include "num/dtype.h"

namespace culprit {
namespace {

constexpr const char* kLogits = "logits";

/// How far each logit may lie from the value that was rounded to it: half an ulp, bounded by u |y| for y = fl(x), or by eta where y is
/// subnormal (Higham, Accuracy and Stability, 2nd ed., theorem 2.3). The least that is legal: the errors accumulated before that last
/// rounding are not in it. An infinite logit is no rounding of anything near it.
std::vector<double> last_rounding(DType dtype, const std::vector<double>& logits) {
  std::vector<double> bounds(logits.size());
  if (!is_float(dtype)) return bounds;
  const auto rounding = rounding_of(dtype);
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (!std::isinf(logits[i])) bounds[i] = std::max(rounding.unit * std::abs(logits[i]), rounding.half_subnormal);
  return bounds;
}

Result<Logits> logits_at(const Trace& trace, const Place& place) {
  CULPRIT_TRY(auto values, values_at(trace, place));
  return Logits{std::move(values), place.record->layout.dtype};
}

/// NaN counts as larger than any number, and stays.
double larger(double one, double other) { return std::isnan(one) || one > other ? one : other; }

std::string token(int id) { return id < 0 ? "no number" : std::to_string(id); }

int copies(const RunPlan& plan, int sequence) { return static_cast<int>(std::ranges::count(plan.sequence_ids, sequence)); }

}  // namespace

Result<std::optional<Flip>> flip_between(const Logits& expected, const Logits& actual) {
  const auto right = top_two(expected.values), seen = top_two(actual.values);
  if (!right && !seen) return std::nullopt;
  if (!right) return Flip{-1, seen->first, seen->margin, false};
  if (!seen) return Flip{right->first, -1, right->margin, false};
  if (right->first == seen->first) return std::nullopt;
  CULPRIT_TRY(const auto flip, argmax_flip(expected.values, actual.values, last_rounding(expected.dtype, expected.values),
                                           last_rounding(actual.dtype, actual.values)));
  // A side whose two candidates are equal does not choose between them, whatever the other side's margin.
  const bool undecided =
      (flip->expected_margin == 0 || flip->actual_margin == 0) && !std::isnan(flip->expected_margin + flip->actual_margin);
  return Flip{right->first, seen->first, std::min(right->margin, seen->margin), flip->tie || undecided};
}

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
      CULPRIT_TRY(const auto right, logits_at(*expected.trace, found->second));
      CULPRIT_TRY(const auto seen, logits_at(*actual.trace, place));
      const auto &x = right.values, &y = seen.values;
      if (x.size() != y.size())
        return fail("tensor-layout", fmt::format("position {} has {} expected logits, {} actual", key.second, x.size(), y.size()));
      ++outcome.positions;
      for (std::size_t i = 0; i < x.size(); ++i)
        if (x[i] != y[i]) outcome.logits_difference_max = larger(outcome.logits_difference_max, std::abs(x[i] - y[i]));
      CULPRIT_TRY(const auto flip, flip_between(right, seen));
      if (!flip) continue;
      ++(flip->tie ? outcome.ties : outcome.flips);
      if (flip->tie || (outcome.first_flip && *outcome.first_flip <= key.second)) continue;
      outcome.first_flip = key.second;
      outcome.first_flip_sequence = key.first;
      outcome.first_flip_expected = flip->expected_id;
      outcome.first_flip_actual = flip->actual_id;
      outcome.first_flip_margin = flip->margin;
    }
  if (outcome.positions == 0) outcome.refused = "the two arms share no position";
  return outcome;
}

Result<std::vector<RelationOutcome>> relate_all(const Ledger& ledger, const Exploration& exploration,
                                                const std::vector<Relation>& relations) {
  std::vector<RelationOutcome> outcomes;
  for (const auto& relation : relations) {
    const auto* expected = exploration.find(relation.expected);
    const auto* actual = exploration.find(relation.actual);
    if (expected == nullptr || actual == nullptr) continue;
    CULPRIT_TRY(auto outcome, relate(ledger, relation.name, expected->made, expected->arm.plan, actual->made, actual->arm.plan));
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

bool further_apart(const RelationOutcome& outcome, const RelationOutcome& other) {
  if ((outcome.flips > 0) != (other.flips > 0)) return outcome.flips > 0;
  if (std::isnan(other.logits_difference_max)) return false;
  return std::isnan(outcome.logits_difference_max) || outcome.logits_difference_max > other.logits_difference_max;
}

std::string to_text(const RelationOutcome& outcome) {
  if (!outcome.refused.empty()) return fmt::format("not compared: {}", outcome.refused);
  auto text = outcome.logits_difference_max == 0
                  ? fmt::format("equal over {} positions", outcome.positions)
                  : fmt::format("logits differ by {:.4g} at most over {} positions", outcome.logits_difference_max, outcome.positions);
  const auto plural = [](int count) { return count == 1 ? "" : "s"; };
  if (outcome.first_flip)
    text +=
        fmt::format("; {} argmax flip{}, first at position {} ({} instead of {}, margin {:.3g})", outcome.flips, plural(outcome.flips),
                    *outcome.first_flip, token(outcome.first_flip_actual), token(outcome.first_flip_expected), outcome.first_flip_margin);
  if (outcome.ties > 0)
    text += fmt::format("; {} argmax flip{} within rounding (tie{})", outcome.ties, plural(outcome.ties), plural(outcome.ties));
  return text;
}

}  // namespace culprit
