#pragma once
// Alignment: finds a logical value (tap, sequence, position) in a trace, whatever the schedule that computed it.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "trace/trace.h"

namespace culprit {

/// Where a trace holds the value of one token.
struct Place {
  const TapRecord* record = nullptr;
  int row = 0;
  int token = 0;
};
using TokenKey = std::pair<int, std::int64_t>;  // sequence, position

/// By step: how many of the last tokens that its cache held are no tokens of their sequence, but of a draft or of another sequence that only
/// shares its prefix. They were taken back later; those before the step's own count too.
[[nodiscard]] std::map<int, std::size_t> drafted_tokens(const Trace& trace);

/// Places of `tap` by (sequence, position), each at the first step that computed it: in a re-prefill that is the step which it ends.
/// Tokens that are taken back are no tokens of their sequence.
/// With several equal rows of one sequence, `copy` picks the nth.
[[nodiscard]] std::map<TokenKey, Place> places(const Trace& trace, const std::string& tap, int copy = 0);

/// The values at one place: [channel] of [row, token, channel], or [head * channel] of [row, head, token, channel].
[[nodiscard]] Result<std::vector<double>> values_at(const Trace& trace, const Place& place);

}  // namespace culprit
