#pragma once
// Two traces, tap by tap, aligned in logical coordinates: the schedules that made them may differ.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arm/align.h"
#include "compare/compare.h"

namespace culprit {

struct TapDifference {
  std::string tap;
  std::int64_t places = 0;  // (sequence, position) that both traces hold with values
  std::int64_t differing_places = 0;
  DifferenceCounts counts;
  std::optional<TokenKey> first;  // the lowest position that differs, and its sequence
  TokenKey worst;                 // where error_max is
};

struct TraceDifference {
  std::vector<TapDifference> taps;        // in the order of the expected trace's records
  std::vector<std::string> not_compared;  // taps that only one trace holds, or that share no place, or have no values; with the reason

  [[nodiscard]] bool equal() const;
};

/// `shift`: what to add to a position of `expected` to get the same logical position of `actual` (other position bases). Of a cache, each
/// position is compared as it is in the last step that holds it. Error ids: cannot-show when nothing can be compared; trace-invalid.
[[nodiscard]] Result<TraceDifference> compare_traces(const Trace& expected, const Trace& actual, std::int64_t shift = 0);

}  // namespace culprit
