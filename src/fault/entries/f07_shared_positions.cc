#include "fault/entries.h"

namespace culprit::entries {
namespace {

Result<std::optional<Broken>> breaks(const FaultSpec&, const OpCall& call) {
  auto broken = call;
  for (auto& row : broken.context.at.position) row = call.context.at.position.front();
  return altered(std::move(broken));
}

}  // namespace

FaultEntry f07_shared_positions() {
  return {.id = "F07",
          .ops = {Op::rope},
          .title = "left-padded rows share one position vector",
          .mechanism = "row 0's positions are used for every row, so shorter rows are rotated as if they were not padded",
          .trigger = "rows at different positions",
          .public_example = "unsloth 3795",
          .parameters = {},
          .breaks = breaks,
          .look_alikes = {
              {"F12", "q_rope and k_rope of padded rows: wrong under F07, right under F12, where attention is the first that is wrong"},
              {"F01", "steps of several tokens: F07 stays, F01 goes"}}};
}

}  // namespace culprit::entries
