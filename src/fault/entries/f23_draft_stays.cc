#include "fault/entries.h"

namespace culprit::entries {
namespace {

/// Whether a row's live slots are in order without gaps: nothing was dropped.
bool in_order(const std::vector<std::int64_t>& slots) {
  for (std::size_t i = 1; i < slots.size(); ++i)
    if (slots[i - 1] >= 0 && slots[i] != slots[i - 1] + 1) return false;
  return true;
}

// The step before read more slots than are cached now: what it fed beyond them was taken back, but its keys or values are still there.
Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  const auto before = cached_tokens(call);
  if (call.taken_back == 0 || call.rows_changed || before == 0 || call.previous.rank() != 4 || call.previous.dim(2) <= before ||
      !in_order(call.context.at.slot[0]))
    return std::nullopt;
  auto output = call.result.copy();
  if (spec.parameter("cache", "draft") == "reset") {
    for_each_index({output.dim(0), output.dim(1), before, output.dim(3)}, [&](std::span<const std::int64_t> i) { output.set(i, 0); });
    return exactly(std::move(output), call);
  }
  const auto stale = std::min(call.previous.dim(2), output.dim(2)) - before;
  for_each_index({output.dim(0), output.dim(1), stale, output.dim(3)}, [&](std::span<const std::int64_t> i) {
    output.set({i[0], i[1], before + i[2], i[3]}, call.previous.at({i[0], i[1], before + i[2], i[3]}));
  });
  return exactly(std::move(output), call);
}

}  // namespace

FaultEntry f23_draft_stays() {
  return {.id = "F23",
          .ops = {Op::cache_write},
          .title = "a rejected draft stays in the cache, or takes all of it along",
          .mechanism =
              "draft tokens were taken back, but the cache still shows their keys or values where the next tokens' belong (draft), or all "
              "that it held before is 0 (reset)",
          .trigger = "a step after one whose draft was taken back",
          .public_example = "mlx-swift-lm 424",
          .parameters = {{"cache", {"draft", "reset"}}},
          .breaks = breaks,
          .meanings = {{"cache=draft", "the tokens of the draft stay"}, {"cache=reset", "all that the cache held before is 0"}},
          .look_alikes = {{"F20", "a draft that is taken back, without reuse: wrong under F23, right under F20"},
                          {"F06", "a decode without drafts: right under F23, wrong under F06"},
                          {"F19", "a draft in a batch whose rows stay: wrong under F23, right under F19"}}};
}

}  // namespace culprit::entries
