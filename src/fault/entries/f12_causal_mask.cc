#include "fault/entries.h"

namespace culprit::entries {
namespace {

// Each slot at the position that it would have if the row had begun so much earlier.
Coordinates without_padding(Coordinates at) {
  for (std::size_t row = 0; row < at.slot.size(); ++row)
    for (std::size_t slot = 0; slot < at.slot[row].size(); ++slot)
      if (at.slot[row][slot] < 0) at.slot[row][slot] = at.position[row].back() - static_cast<std::int64_t>(at.slot[row].size() - 1 - slot);
  return at;
}

// Which slots a token sees follows from positions, so a wrong mask is a call with other positions of the tokens.
Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  const auto& at = call.context.at;
  const auto mask = spec.parameter("mask", "top_left");
  if (mask == "no_padding") {
    auto broken = call;
    broken.context.at = without_padding(at);
    return altered(std::move(broken));
  }
  if (at.tokens() < 2) return std::nullopt;
  const bool top_left = mask == "top_left";
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
          .title = "the causal mask is aligned top-left, or missing, or lacks padding",
          .mechanism =
              "token t of a chunk sees slots 0..t of the cache (top_left), or all slots (none), or those of padding too (no_padding), "
              "instead of "
              "the live ones up to its own",
          .trigger = "a chunk of several tokens; top_left: after tokens that are cached already; no_padding: a row that is padded",
          .public_example = "unsloth 9848, mlx 2835",
          .parameters = {{"mask", {"top_left", "none", "no_padding"}}},
          .breaks = breaks,
          .meanings = {{"mask=top_left", "token t of a chunk sees slots 0 to t of the cache"},
                       {"mask=none", "each token sees all slots"},
                       {"mask=no_padding", "slots of padding are seen"}},
          .look_alikes = {{"F07", "q_rope and k_rope of padded rows: right under F12"},
                          {"F11", "layers without a window: wrong under F12, right under F11"}}};
}

}  // namespace culprit::entries
