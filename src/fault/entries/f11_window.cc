#include "fault/entries.h"

namespace culprit::entries {
namespace {

Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  const int window = call.node->window;
  if (window == 0 || call.inputs.at(1).dim(2) <= window) return std::nullopt;
  return altered(with_window(call, spec.parameter("window", "plus_one") == "none" ? 0 : window + 1));
}

}  // namespace

FaultEntry f11_window() {
  return {.id = "F11",
          .ops = {Op::sdpa},
          .title = "a sliding layer sees one position too many, or all",
          .mechanism = "the mask of a sliding layer keeps window + 1 positions (plus_one), or the layer is taken for a full one (none)",
          .trigger = "a layer with a window, and more cached tokens than it",
          .public_example = "transformers 39408",
          .parameters = {{"window", {"plus_one", "none"}}},
          .breaks = breaks,
          .meanings = {{"window=plus_one", "one position too many is seen"}, {"window=none", "all positions are"}},
          .look_alikes = {{"F13", "a cache that keeps all tokens: F11 stays, F13 is of a ring and goes"},
                          {"F12", "a step of one token behind a full window: F11 stays, F12:mask=none and top_left need several"}},
          .plant_model = "gemma3"};
}

}  // namespace culprit::entries
