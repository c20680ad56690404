#include "audit/recurrent_history.h"

namespace culprit {

std::optional<Tensor> RecurrentHistory::before(const Coordinates& at, const Layout& layout) const {
  if (layout.shape.size() != 4 || at.tokens() == 0) return std::nullopt;
  Coordinates earlier;
  earlier.sequence = at.sequence;
  for (const auto& positions : at.position) {
    auto& slots = earlier.slot.emplace_back();
    for (auto position = positions.front() - tokens_; position < positions.front(); ++position)
      slots.push_back(position < position_base_ ? -1 : position);
  }
  const auto expected = history_.expect(earlier, layout.dtype, {at.rows(), layout.shape[1], tokens_, layout.shape[3]});
  if (expected.live_unknown > 0) return std::nullopt;
  return expected.values;
}

}  // namespace culprit
