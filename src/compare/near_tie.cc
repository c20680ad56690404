#include "compare/near_tie.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace culprit {

Result<TopTwo> top_two(std::span<const double> values) {
  int first = -1, second = -1;
  const auto at = [&](int id) { return values[static_cast<std::size_t>(id)]; };
  for (int id = 0; id < static_cast<int>(values.size()); ++id) {
    if (std::isnan(at(id))) continue;
    if (first < 0 || at(id) > at(first)) {
      second = first;
      first = id;
    } else if (second < 0 || at(id) > at(second)) {
      second = id;
    }
  }
  if (first < 0) return fail("cannot-show", fmt::format("none of {} values is a number", values.size()));
  TopTwo top{first, second, std::numeric_limits<double>::infinity()};
  if (second >= 0) top.margin = at(first) == at(second) ? 0 : at(first) - at(second);
  return top;
}

Result<std::optional<ArgmaxFlip>> argmax_flip(std::span<const double> expected, std::span<const double> actual,
                                              std::span<const double> expected_bounds, std::span<const double> actual_bounds) {
  if (expected.size() != actual.size() || expected.size() != expected_bounds.size() || expected.size() != actual_bounds.size())
    return fail("tensor-layout", fmt::format("{} expected logits, {} actual, {} and {} bounds", expected.size(), actual.size(),
                                             expected_bounds.size(), actual_bounds.size()));
  CULPRIT_TRY(const auto right, top_two(expected));
  CULPRIT_TRY(const auto seen, top_two(actual));
  if (right.first == seen.first) return std::nullopt;
  ArgmaxFlip flip;
  flip.expected_id = right.first;
  flip.actual_id = seen.first;
  const auto e = static_cast<std::size_t>(right.first), a = static_cast<std::size_t>(seen.first);
  flip.expected_margin = expected[e] - expected[a];
  flip.actual_margin = actual[a] - actual[e];
  const double reach = expected_bounds[e] + expected_bounds[a] + actual_bounds[e] + actual_bounds[a];
  flip.tie = flip.expected_margin + flip.actual_margin <= reach;
  return flip;
}

}  // namespace culprit
