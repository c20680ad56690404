#include <charconv>

#include "fault/entries.h"

namespace culprit::entries {
namespace {

/// New tokens from slot `limit` on land at the cache's beginning; their own slots stay unwritten.
std::optional<Broken> wrapped_slots(const OpCall& call, std::int64_t limit) {
  const auto before = cached_tokens(call);
  const auto& x = call.inputs.at(0);
  if (before + x.dim(2) <= limit || !appends(call)) return std::nullopt;
  auto output = call.result.copy();
  for_each_index(x.shape(), [&](std::span<const std::int64_t> i) {
    if (before + i[2] >= limit) output.set({i[0], i[1], before + i[2], i[3]}, 0);
  });
  for_each_index({x.dim(2), x.dim(0), x.dim(1), x.dim(3)}, [&](std::span<const std::int64_t> i) {  // a later token wins
    if (before + i[0] >= limit) output.set({i[1], i[2], (before + i[0]) % limit, i[3]}, call.result.at({i[1], i[2], before + i[0], i[3]}));
  });
  return exactly(std::move(output), call);
}

Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  const auto text = spec.parameter("limit", "256");
  std::int64_t limit = 0;
  std::from_chars(text.data(), text.data() + text.size(), limit);
  const bool of_slots = spec.parameter("index", "position") == "slot";
  if (of_slots != (call.node->op == Op::cache_write)) return std::nullopt;
  if (of_slots) return wrapped_slots(call, limit);
  auto broken = call;
  for (auto& row : broken.context.at.position)
    for (auto& position : row)
      if (position >= 0) position %= limit;
  return altered(std::move(broken));
}

}  // namespace

FaultEntry f18_index_wraps() {
  return {.id = "F18",
          .ops = {Op::rope, Op::cache_write},
          .title = "an index wraps past a limit",
          .mechanism = "rotary positions (position), or the slots that new tokens are written to (slot), are taken modulo the limit",
          .trigger = "positions, or slots, from the limit on",
          .public_example = "vllm 50427",
          .parameters = {{"index", {"position", "slot"}}, {"limit", {"256", "2048", "4"}}},
          .breaks = breaks,
          .meanings = {{"index=position", "rotary positions are taken modulo the limit"},
                       {"index=slot", "the slots that new tokens are written to are"},
                       {"limit=256", "8 bits"},
                       {"limit=2048", "11 bits"},
                       {"limit=4", "a table of four, which short runs reach"}},
          .look_alikes = {{"F15", "the cache and the rotated keys: right under F15, wrong under F18"},
                          {"F06", "a run below the limit: right under F18, wrong under F06"}}};
}

}  // namespace culprit::entries
