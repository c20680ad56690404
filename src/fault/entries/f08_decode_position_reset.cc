#include "fault/entries.h"

namespace culprit::entries {
namespace {

Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  const auto before = cached_tokens(call);
  if (call.context.at.tokens() != 1 || before == 0) return std::nullopt;
  auto broken = call;
  const std::int64_t position = spec.parameter("position", "zero") == "zero" ? 0 : before;
  for (auto& row : broken.context.at.position) row[0] = position;
  return altered(std::move(broken));
}

}  // namespace

FaultEntry f08_decode_position_reset() {
  return {.id = "F08",
          .ops = {Op::rope},
          .title = "decode steps use position 0, or the cache length without its base",
          .mechanism = "a single-token step computes its rotary position anew instead of continuing the sequence",
          .trigger = "one token and a cache which is not empty",
          .public_example = "mlx-vlm 1983",
          .parameters = {{"position", {"zero", "cache_length"}}},
          .breaks = breaks,
          .meanings = {{"position=zero", "position 0 at each single-token step"},
                       {"position=cache_length", "the number of cached tokens, the sequence's first position left out"}},
          .look_alikes = {{"F05", "keys: wrong under F08, right under F05"},
                          {"F06", "the cache's slots: each is written where it belongs under F08"},
                          {"F09", "small positions: F09 is right where the dtype holds them, F08 is not"}}};
}

}  // namespace culprit::entries
