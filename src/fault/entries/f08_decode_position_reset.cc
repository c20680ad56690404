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
          .breaks = breaks};
}

}  // namespace culprit::entries
