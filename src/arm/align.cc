#include "arm/align.h"

namespace culprit {

std::map<TokenKey, Place> places(const Trace& trace, const std::string& tap, int copy) {
  std::map<TokenKey, Place> found;
  for (const auto& record : trace.records()) {
    if (record.tap != tap) continue;
    std::map<int, int> seen;  // rows of a sequence so far
    for (int row = 0; row < static_cast<int>(record.at.rows()); ++row) {
      const int sequence = record.at.sequence[static_cast<std::size_t>(row)];
      if (seen[sequence]++ != copy) continue;
      const auto& positions = record.at.position[static_cast<std::size_t>(row)];
      for (int token = 0; token < static_cast<int>(positions.size()); ++token)
        found.try_emplace({sequence, positions[static_cast<std::size_t>(token)]}, Place{&record, row, token});
    }
  }
  return found;
}

Result<std::vector<double>> values_at(const Trace& trace, const Place& place) {
  CULPRIT_TRY(auto tensor, trace.tensor(*place.record));
  const int token_axis = tensor.rank() - 2;
  return tensor.sliced(0, place.row, place.row + 1).sliced(token_axis, place.token, place.token + 1).values();
}

}  // namespace culprit
