#include "engines/kit/recurrent_states.h"

#include <fmt/format.h>

namespace culprit::kit {

Array RecurrentStates::before(const std::string& tap) const {
  const auto found = states_.find(tap);
  return found == states_.end() ? nullptr : found->second.values;
}

Result<void> RecurrentStates::settle(Backend& backend, std::int64_t fed, std::int64_t taken_back) {
  const auto left = fed - taken_back;
  if (left < 0 && !passed_.empty())
    return fail("not-supported", fmt::format("a recurrent state cannot be taken back {} tokens after a step of {}", taken_back, fed));
  for (const auto& item : passed_) {
    if (left <= 0) break;  // as it was
    const auto& passed = item.second;
    const auto begin = left - (passed.kept + fed - backend.shape(passed.whole)[2]);
    auto& state = states_[item.first];
    state.dtype = passed.dtype;
    CULPRIT_TRY(state.values, backend.slice(passed.whole, 2, begin, begin + passed.kept));
  }
  passed_.clear();
  return {};
}

Result<void> RecurrentStates::restore(Backend& backend) {
  for (auto& item : states_) {
    CULPRIT_TRY(const auto copy, backend.to_host(item.second.values));
    CULPRIT_TRY(item.second.values, backend.from_host(copy.copy()));
  }
  return {};
}

Result<RecurrentStates> RecurrentStates::gathered(Backend& backend, std::span<const Row> rows) {
  std::map<std::string, const State*> some;
  for (const auto& row : rows)
    if (row.states != nullptr)
      for (const auto& item : row.states->states_) some.emplace(item.first, &item.second);
  RecurrentStates made;
  for (const auto& item : some) {
    std::vector<Array> parts;
    for (const auto& row : rows) {
      const auto from = row.states == nullptr ? nullptr : row.states->before(item.first);
      auto shape = backend.shape(item.second->values);
      shape[0] = 1;
      if (from == nullptr) {
        CULPRIT_TRY(parts.emplace_back(), backend.zeros(shape, item.second->dtype));
      } else {
        CULPRIT_TRY(parts.emplace_back(), backend.slice(from, 0, row.index, row.index + 1));
      }
    }
    auto& state = made.states_[item.first];
    state = {parts[0], item.second->dtype};
    if (parts.size() > 1) {
      CULPRIT_TRY(state.values, backend.concatenate(parts, 0));
    }
  }
  return made;
}

}  // namespace culprit::kit
