#include "fault/entries.h"

namespace culprit::entries {
namespace {

bool in_time_order(const std::vector<std::int64_t>& slots) { return std::ranges::is_sorted(slots); }

/// `stored` without the `over` slots behind the first `keep`, in the order of its slots, as many as `slots`; then `first_new` on are the new
/// tokens.
Tensor cut(const OpCall& call, const Tensor& stored, std::int64_t over, std::int64_t first_new) {
  auto output = call.result.copy();
  const auto& x = call.inputs.at(0);
  const auto keep = call.context.cache_spec.keep;
  for_each_index(output.shape(), [&](std::span<const std::int64_t> i) {
    const auto token = i[2] - first_new, slot = i[2] < keep ? i[2] : i[2] + over;
    const bool is_new = token >= 0 && token < x.dim(2);
    output.set(i, is_new ? x.at({i[0], i[1], token, i[3]}) : stored.at({i[0], i[1], slot, i[3]}));
  });
  return output;
}

/// Several tokens are appended to the ring as it lies: what is dropped follows the slots, not the age.
std::optional<Broken> sliced_as_it_lies(const OpCall& call) {
  const auto& stored = call.context.cache;
  const auto& slots = call.context.cache_slot;
  if (call.context.at.tokens() < 2 || slots.empty() || in_time_order(slots[0])) return std::nullopt;
  const auto kept = call.result.dim(2) - call.context.at.tokens();
  return exactly(cut(call, stored, stored.dim(2) - kept, kept), call);
}

/// Tokens were taken back by the counters alone: the buffer, which a chunk made longer than the ring, still has them at its end when the
/// next token cuts it at its beginning.
std::optional<Broken> trimmed_by_counters(const OpCall& call) {
  const auto over = call.previous.rank() == 4 ? call.previous.dim(2) - call.context.cache_spec.size : 0;
  if (call.context.at.tokens() != 1 || call.taken_back == 0 || over <= 0) return std::nullopt;
  return exactly(cut(call, call.previous, over, call.context.cache_spec.keep), call);
}

/// One slot is freed for a token, however many too many a chunk left: the newest tokens lie behind the end of the ring.
std::optional<Broken> cut_by_one(const OpCall& call) {
  const auto& stored = call.context.cache;
  const auto size = call.context.cache_spec.size;
  if (call.context.at.tokens() != 1 || call.taken_back > 0 || stored.rank() != 4 || stored.dim(2) - size < 2) return std::nullopt;
  return exactly(cut(call, stored, 1, call.context.cache_spec.keep), call);
}

Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  if (call.context.cache_spec.kind != CacheKind::rotating) return std::nullopt;
  const auto how = spec.parameter("how", "slice");
  if (how == "slice") return sliced_as_it_lies(call);
  return how == "trim" ? trimmed_by_counters(call) : cut_by_one(call);
}

}  // namespace

FaultEntry f13_ring_cache() {
  return {.id = "F13",
          .ops = {Op::cache_write},
          .title = "a ring cache is cut as if it lay in order of time",
          .mechanism =
              "a rotating cache drops the wrong tokens: a chunk is appended to the ring as it lies (slice), tokens are taken back by the "
              "counters while the buffer keeps them (trim), or one slot is freed where a chunk left several too many (one_token)",
          .trigger =
              "a rotating cache; slice: several tokens after it wrapped; trim: a token after others were taken back from a buffer longer "
              "than the ring; one_token: a token after a chunk that is longer than the ring by two",
          .public_example = "mlx-vlm 1715, mlx-lm 1914",
          .parameters = {{"how", {"slice", "trim", "one_token"}}},
          .breaks = breaks,
          .meanings = {{"how=slice", "a chunk is appended to the ring as it lies"},
                       {"how=trim", "tokens are taken back by the counters, and the buffer keeps them"},
                       {"how=one_token", "one slot is freed where a chunk left several too many"}},
          .look_alikes = {{"F11", "a cache that keeps all tokens: F11 stays, F13 is of a ring and goes"}},
          .plant_model = "gemma3"};
}

}  // namespace culprit::entries
