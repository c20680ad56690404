#include "fault/entries.h"

namespace culprit::entries {
namespace {

// Which slots a token sees follows from positions, so a wrong mask is a call with other positions of the tokens.
Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  const auto& at = call.context.at;
  const auto tokens = at.tokens();
  if (tokens < 2) return std::nullopt;
  const bool top_left = spec.parameter("mask", "top_left") == "top_left";
  if (top_left && cached_tokens(call) == 0) return std::nullopt;
  auto broken = call;
  for (std::size_t row = 0; row < at.position.size(); ++row)
    for (std::size_t token = 0; token < at.position[row].size(); ++token)
      broken.context.at.position[row][token] = top_left ? at.slot[row][token] : at.slot[row].back();
  if (!top_left && call.node->window > 0) return altered(with_window(std::move(broken), 0));  // no mask, no window
  return altered(std::move(broken));
}

}  // namespace

FaultEntry f12_causal_mask() {
  return {.id = "F12",
          .ops = {Op::sdpa},
          .title = "the causal mask is aligned top-left, or missing",
          .mechanism = "token t of a chunk sees slots 0..t of the cache (top_left), or all slots (none), instead of all up to its own",
          .trigger = "a chunk of several tokens; top_left: after tokens that are cached already",
          .public_example = "unsloth 9848, mlx 2835",
          .parameters = {{"mask", {"top_left", "none"}}},
          .breaks = breaks};
}

}  // namespace culprit::entries
