#include "arm/align.h"

#include "engine/plan.h"

namespace culprit {

std::map<int, std::size_t> drafted_tokens(const Trace& trace) {
  std::map<int, std::size_t> drafted;
  const auto json = trace.header().find("plan");
  if (json == trace.header().end()) return drafted;
  const auto plan = run_plan_from_json(*json);
  if (!plan || !validate(*plan)) return drafted;
  for (int step = 0; step < steps_of(*plan); ++step)
    if (const int held = foreign_held(*plan, step); held > 0) drafted[step] = static_cast<std::size_t>(held);
  return drafted;
}

std::map<TokenKey, Place> places(const Trace& trace, const std::string& tap, int copy) {
  std::map<TokenKey, Place> found;
  const auto drafted = drafted_tokens(trace);
  for (const auto& record : trace.records()) {
    if (record.tap != tap) continue;
    const auto taken_back = drafted.contains(record.step) ? drafted.at(record.step) : 0;
    std::map<int, int> seen;  // rows of a sequence so far
    for (int row = 0; row < static_cast<int>(record.at.rows()); ++row) {
      const int sequence = record.at.sequence[static_cast<std::size_t>(row)];
      if (seen[sequence]++ != copy) continue;
      const auto& positions = record.at.position[static_cast<std::size_t>(row)];
      for (std::size_t token = 0; token + taken_back < positions.size(); ++token)
        found.try_emplace({sequence, positions[token]}, Place{&record, row, static_cast<int>(token)});
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
