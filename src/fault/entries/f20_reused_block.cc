#include "fault/entries.h"

namespace culprit::entries {
namespace {

// Behind a reused prefix, the step before read the other sequence: its own tokens lie behind the common ones. A copy that was made again
// has none of another sequence.
Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  const auto before = cached_tokens(call);
  if ((!call.prefix_reused && !call.restored) || before == 0 || !appends(call)) return std::nullopt;
  const auto block = spec.parameter("block", "foreign");
  const auto foreign = call.prefix_reused && call.previous.rank() == 4 ? call.previous.dim(2) - before : 0;
  if (block == "foreign" && foreign <= 0) return std::nullopt;
  const auto first = block == "half" ? before / 2 : 0;
  auto output = call.result.copy();
  for_each_index({output.dim(0), output.dim(1), before - first, output.dim(3)}, [&](std::span<const std::int64_t> i) {
    const auto slot = first + i[2];
    if (block == "unwritten" || foreign <= 0)
      output.set({i[0], i[1], slot, i[3]}, 0);
    else if (slot < foreign)
      output.set({i[0], i[1], slot, i[3]}, call.previous.at({i[0], i[1], before + slot, i[3]}));
  });
  return exactly(std::move(output), call);
}

}  // namespace

FaultEntry f20_reused_block() {
  return {.id = "F20",
          .ops = {Op::cache_write},
          .title = "a reused cache is a foreign, unwritten or half-overwritten one",
          .mechanism =
              "what comes back as the cached prefix holds the other sequence's own tokens (foreign), nothing (unwritten), or these in its "
              "later half (half; of a copy: nothing)",
          .trigger = "the first step behind a prefix that is reused, or after the cache was made again from a copy",
          .public_example = "LMCache 4991",
          .parameters = {{"block", {"foreign", "unwritten", "half"}}},
          .breaks = breaks,
          .meanings = {{"block=foreign", "the other sequence's own tokens"},
                       {"block=unwritten", "nothing was written"},
                       {"block=half", "the later half is the other sequence's; of a copy: nothing"}},
          .look_alikes = {{"F14", "the cache that attention reads: right under F14, foreign under F20"},
                          {"F19", "a batch whose rows stay, with a reused prefix: right under F19, wrong under F20"},
                          {"F23", "a draft that is taken back, without reuse: wrong under F23, right under F20"}}};
}

}  // namespace culprit::entries
