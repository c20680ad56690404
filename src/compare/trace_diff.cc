#include "compare/trace_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

namespace culprit {
namespace {

using Places = std::map<TokenKey, Place>;

bool is_cache(const std::string& tap) { return tap.ends_with("_cache"); }

/// Where a trace holds each position of a cache: in the last step that has it, so that later damage shows.
Places cache_places(const Trace& trace, const std::string& tap) {
  Places found;
  const auto drafted = drafted_tokens(trace);
  for (const auto& record : trace.records()) {
    if (record.tap != tap) continue;
    const auto taken_back = drafted.contains(record.step) ? static_cast<std::int64_t>(drafted.at(record.step)) : 0;
    std::vector<int> seen;  // only the first of several equal rows, as in arm/align.h
    for (int row = 0; row < static_cast<int>(record.at.rows()); ++row) {
      const int sequence = record.at.sequence[static_cast<std::size_t>(row)];
      if (std::ranges::find(seen, sequence) != seen.end()) continue;
      seen.push_back(sequence);
      const auto& slots = record.at.slot[static_cast<std::size_t>(row)];
      const auto& fed = record.at.position[static_cast<std::size_t>(row)];
      const auto end = fed.empty() ? std::numeric_limits<std::int64_t>::max() : fed.back() + 1 - taken_back;
      for (int slot = 0; slot < static_cast<int>(slots.size()); ++slot)
        if (const auto position = slots[static_cast<std::size_t>(slot)]; position >= 0 && position < end)
          found[{sequence, position}] = Place{&record, row, slot};
    }
  }
  return found;
}

/// Only what has values: a record of hashes alone cannot be aligned.
Places places_with_values(const Trace& trace, const std::string& tap) {
  auto found = is_cache(tap) ? cache_places(trace, tap) : places(trace, tap);
  std::erase_if(found, [](const auto& item) { return item.second.record->file.empty(); });
  return found;
}

/// The tensor of one token, in the dtype that it was recorded in.
Result<Tensor> tensor_at(const Trace& trace, const Place& place) {
  CULPRIT_TRY(const auto tensor, trace.tensor(*place.record));
  const int token_axis = tensor.rank() - 2;
  if (place.row >= tensor.dim(0) || place.token >= tensor.dim(token_axis))
    return fail("trace-invalid",
                fmt::format("step {}, tap {}: row {}, token {} is not in the tensor", place.record->step, place.record->tap, place.row,
                            place.token),
                trace.folder().string());
  return tensor.sliced(0, place.row, place.row + 1).sliced(token_axis, place.token, place.token + 1);
}

bool earlier(const TokenKey& left, const TokenKey& right) {
  return std::pair(left.second, left.first) < std::pair(right.second, right.first);
}

std::vector<std::string> taps_of(const Trace& trace) {
  std::vector<std::string> taps;
  for (const auto& record : trace.records())
    if (std::ranges::find(taps, record.tap) == taps.end()) taps.push_back(record.tap);
  return taps;
}

Result<TapDifference> compare_tap(const std::string& tap, const Trace& expected, const Trace& actual, std::int64_t shift) {
  TapDifference difference;
  difference.tap = tap;
  const auto actual_places = places_with_values(actual, tap);
  for (const auto& [key, place] : places_with_values(expected, tap)) {
    const auto other = actual_places.find({key.first, key.second + shift});
    if (other == actual_places.end()) continue;
    CULPRIT_TRY(const auto expected_tensor, tensor_at(expected, place));
    CULPRIT_TRY(const auto actual_tensor, tensor_at(actual, other->second));
    CULPRIT_TRY(const auto here, compare(expected_tensor, actual_tensor));
    if (!here.equal() && (difference.differing_places == 0 || here.all.error_max > difference.counts.error_max)) difference.worst = key;
    difference.counts.merge(here.all);
    ++difference.places;
    if (here.equal()) continue;
    ++difference.differing_places;
    if (!difference.first || earlier(key, *difference.first)) difference.first = key;
  }
  return difference;
}

}  // namespace

bool TraceDifference::equal() const {
  return std::ranges::all_of(taps, [](const TapDifference& tap) { return tap.differing_places == 0; });
}

Result<TraceDifference> compare_traces(const Trace& expected, const Trace& actual, std::int64_t shift) {
  TraceDifference difference;
  const auto actual_taps = taps_of(actual);
  const auto expected_taps = taps_of(expected);
  for (const auto& tap : expected_taps) {
    if (std::ranges::find(actual_taps, tap) == actual_taps.end()) {
      difference.not_compared.push_back(tap + ": only the expected trace holds it");
      continue;
    }
    CULPRIT_TRY(auto found, compare_tap(tap, expected, actual, shift));
    if (found.places == 0)
      difference.not_compared.push_back(tap + ": no (sequence, position) of which both hold values");
    else
      difference.taps.push_back(std::move(found));
  }
  for (const auto& tap : actual_taps)
    if (std::ranges::find(expected_taps, tap) == expected_taps.end())
      difference.not_compared.push_back(tap + ": only the actual trace holds it");
  if (difference.taps.empty()) return fail("cannot-show", "the traces have no tap, sequence and position with values in common");
  return difference;
}

}  // namespace culprit
