#include "fault/entries.h"

namespace culprit::entries {
namespace {

Result<std::optional<Broken>> breaks(const FaultSpec&, const OpCall& call) {
  if (tap_role(call.node->output) != "q_rope") return std::nullopt;
  auto broken = call;
  const auto shift = call.context.at.tokens();
  for (auto& row : broken.context.at.position)
    for (auto& position : row) position += shift;
  return altered(std::move(broken));
}

}  // namespace

FaultEntry f05_query_position_advanced() {
  return {.id = "F05",
          .ops = {Op::rope},
          .title = "queries are rotated at position + L",
          .mechanism = "the cache's offset is read after the update, so the query is rotated L positions late while the key is right",
          .trigger = "always, queries only",
          .public_example = "mlx-lm 1097, 1396",
          .parameters = {},
          .breaks = breaks,
          .look_alikes = {{"F06", "k_rope and the cache against q_rope: F05 breaks queries only, F06 the slot that is written"},
                          {"F08", "the step's length: F05 is off by L, prefill included; F08 is right in a prefill"},
                          {"F09", "f32: F09:table=dtype goes, F05 stays"}}};
}

}  // namespace culprit::entries
