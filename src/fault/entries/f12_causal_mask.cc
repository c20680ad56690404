#include <cmath>
#include <limits>

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

/// Whether a dead slot of the row holds a NaN, which a weight of 0 does not hide.
bool spreads_nan(const OpCall& call, std::int64_t row) {
  const auto& slots = call.context.at.slot[static_cast<std::size_t>(row)];
  for (std::size_t input : {1u, 2u}) {
    const auto& cache = call.inputs.at(input);
    for (std::int64_t slot = 0; slot < cache.dim(2); ++slot)
      for (std::int64_t head = 0; slots[static_cast<std::size_t>(slot)] < 0 && head < cache.dim(1); ++head)
        for (std::int64_t channel = 0; channel < cache.dim(3); ++channel)
          if (std::isnan(cache.at({row, head, slot, channel}))) return true;
  }
  return false;
}

/// A token of padding sees nothing and gets NaN; the keys and values that later layers make of it give that to every token of its row.
std::optional<Broken> all_masked_rows_are_nan(const OpCall& call) {
  auto output = call.result.copy();
  const auto& at = call.context.at;
  for_each_index({output.dim(0), output.dim(2)}, [&](std::span<const std::int64_t> i) {
    const auto& slots = at.slot[static_cast<std::size_t>(i[0])];
    const auto own = std::ssize(slots) - at.tokens() + i[1];
    if (own < 0 || (slots[static_cast<std::size_t>(own)] >= 0 && !spreads_nan(call, i[0]))) return;
    for (std::int64_t head = 0; head < output.dim(1); ++head)
      for (std::int64_t channel = 0; channel < output.dim(3); ++channel)
        output.set({i[0], head, i[1], channel}, std::numeric_limits<double>::quiet_NaN());
  });
  return exactly(std::move(output), call);
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
  if (mask == "all_masked") return all_masked_rows_are_nan(call);
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
  return {
      .id = "F12",
      .ops = {Op::sdpa},
      .title = "the causal mask is aligned top-left, or missing, or lacks padding",
      .mechanism =
          "token t of a chunk sees slots 0..t of the cache (top_left), or all slots (none), or those of padding too (no_padding), "
          "instead of the live ones up to its own; or a token of padding, which sees none, becomes NaN and spreads (all_masked)",
      .trigger = "a chunk of several tokens; top_left: after tokens that are cached already; no_padding, all_masked: a row that is padded",
      .public_example = "unsloth 9848, mlx 2835",
      .parameters = {{"mask", {"top_left", "none", "no_padding", "all_masked"}}},
      .breaks = breaks,
      .meanings = {{"mask=top_left", "token t of a chunk sees slots 0 to t of the cache"},
                   {"mask=none", "each token sees all slots"},
                   {"mask=no_padding", "slots of padding are seen"},
                   {"mask=all_masked", "a token of padding, which sees nothing, becomes NaN and spreads"}},
      .look_alikes = {{"F07", "q_rope and k_rope of padded rows: right under F12"},
                      {"F11", "layers without a window: wrong under F12, right under F11"}}};
}

}  // namespace culprit::entries
