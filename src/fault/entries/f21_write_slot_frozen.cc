#include "fault/entries.h"

namespace culprit::entries {
namespace {

// The slot is a constant of the traced graph; one behind the live view is lost.
Result<std::optional<Broken>> breaks(const FaultSpec&, const OpCall& call) {
  const auto before = cached_tokens(call), slot = call.traced_slot;
  if (call.context.at.tokens() != 1 || slot < 0 || slot == before || !appends(call)) return std::nullopt;
  auto output = call.result.copy();
  for_each_index({output.dim(0), output.dim(1), output.dim(3)}, [&](std::span<const std::int64_t> i) {
    output.set({i[0], i[1], before, i[2]}, 0);
    if (slot < output.dim(2)) output.set({i[0], i[1], slot, i[2]}, call.result.at({i[0], i[1], before, i[2]}));
  });
  return exactly(std::move(output), call);
}

}  // namespace

FaultEntry f21_write_slot_frozen() {
  return {.id = "F21",
          .ops = {Op::cache_write},
          .title = "the write slot is frozen at trace time",
          .mechanism = "every single-token step writes the slot that the first one wrote; its own slot stays unwritten",
          .trigger = "a single-token step at another slot than the run's first one",
          .public_example = "mlx-swift-lm 406",
          .parameters = {},
          .breaks = breaks,
          .look_alikes = {{"F06", "the first step of one token: right under F21, wrong under F06"}}};
}

}  // namespace culprit::entries
