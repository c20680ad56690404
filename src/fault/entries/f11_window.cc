#include "fault/entries.h"

namespace culprit::entries {
namespace {

Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  const int window = call.node->window;
  if (window == 0 || call.inputs.at(1).dim(2) <= window) return std::nullopt;
  const auto wrong = spec.parameter("window", "plus_one");
  if (wrong == "none_in_decode" && call.context.at.tokens() != 1) return std::nullopt;
  return altered(with_window(call, wrong == "plus_one" ? window + 1 : 0));
}

}  // namespace

FaultEntry f11_window() {
  return {.id = "F11",
          .ops = {Op::sdpa},
          .title = "a sliding layer sees one position too many, or all",
          .mechanism =
              "the mask of a sliding layer keeps window + 1 positions (plus_one), or the layer is taken for a full one at every step "
              "(none) or at those of a single token (none_in_decode)",
          .trigger = "a layer with a window, and more cached tokens than it",
          .public_example = "transformers 39408",
          .parameters = {{"window", {"plus_one", "none", "none_in_decode"}}},
          .breaks = breaks,
          .meanings = {{"window=plus_one", "one position too many is seen"},
                       {"window=none", "all positions are"},
                       {"window=none_in_decode", "all positions are, at steps of a single token"}},
          .look_alikes = {{"F13", "a cache that keeps all tokens: F11 stays, F13 is of a ring and goes"},
                          {"F12", "a step of one token behind a full window: F11 stays, F12:mask=none and top_left need several"}},
          .plant_model = "gemma3"};
}

}  // namespace culprit::entries
