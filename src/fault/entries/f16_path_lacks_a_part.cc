#include <limits>

#include "fault/entries.h"

namespace culprit::entries {
namespace {

constexpr std::int64_t kHeads = 8;   // query heads of a group that the path was written for
constexpr std::int64_t kLanes = 32;  // channels that it stores at a time

/// What attention sees without the tokens that the cache keeps from the beginning.
Result<std::optional<Broken>> without_sink(const OpCall& call) {
  const auto& cache = call.context.cache_spec;
  const auto sinks = cache.kind == CacheKind::sink_window ? cache.sink : cache.kind == CacheKind::rotating ? cache.keep : 0;
  auto broken = call;
  for (auto& row : broken.context.at.slot) {
    if (std::ssize(row) <= sinks) return std::nullopt;
    std::fill(row.begin(), row.begin() + sinks, -1);
  }
  return altered(std::move(broken));
}

double unwritten(const OpCall& call, const std::string& content, const StaleBuffer& stale, std::span<const std::int64_t> i) {
  if (content == "zero") return 0;
  if (content == "nan") return std::numeric_limits<double>::quiet_NaN();
  const auto& shape = call.result.shape();
  return stale.at(((i[0] * shape[1] + i[1]) * shape[2] + i[2]) * shape[3] + i[3]);
}

/// The places that `is_stored` denies hold what the buffer held.
template <class IsStored>
std::optional<Broken> without(const OpCall& call, const std::string& content, IsStored&& is_stored) {
  auto output = call.result.copy();
  const StaleBuffer stale(call);
  for_each_index(output.shape(), [&](std::span<const std::int64_t> i) {
    if (!is_stored(i)) output.set(i, unwritten(call, content, stale, i));
  });
  return exactly(std::move(output), call);
}

Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  const auto part = spec.parameter("part", "sink"), content = spec.parameter("content", "stale");
  if (call.context.at.tokens() != 1) return std::nullopt;
  if (call.node->op == Op::softcap) {
    if (part != "softcap") return std::nullopt;
    return exactly(call.inputs.at(0).cast(call.dtype), call);
  }
  if (part == "softcap") return std::nullopt;
  if (part == "sink") return without_sink(call);
  const auto& q = call.inputs.at(0);
  const auto group = q.dim(1) / call.inputs.at(1).dim(1), channels = call.result.dim(3);
  if (part == "heads") {
    if (group <= kHeads) return std::nullopt;
    return without(call, content, [&](std::span<const std::int64_t> i) { return i[1] % group < kHeads; });
  }
  if (channels <= kLanes || channels % kLanes == 0) return std::nullopt;
  return without(call, content, [&](std::span<const std::int64_t> i) { return i[3] < channels / kLanes * kLanes; });
}

bool is_distinct(const FaultSpec& spec) {
  const auto part = spec.parameter("part", "sink");
  return part == "heads" || part == "head_dim" || spec.parameter("content", "stale") == "stale";
}

}  // namespace

FaultEntry f16_path_lacks_a_part() {
  return {.id = "F16",
          .ops = {Op::sdpa, Op::softcap},
          .title = "the single-token path lacks a part that the other has",
          .mechanism =
              "the path of single-token steps does not see the sink, does not cap, or does not store query heads 8.. of a group or the "
              "channels behind the last whole 32",
          .trigger =
              "one token, and: a cache with a sink (sink), a capped model (softcap), groups of more than 8 query heads (heads), heads of "
              "more than 32 channels, not whole 32s (head_dim)",
          .public_example = "vllm-metal 665",
          .parameters = {{"part", {"sink", "softcap", "heads", "head_dim"}}, {"content", {"stale", "zero", "nan"}}},
          .breaks = breaks,
          .is_distinct = is_distinct,
          .meanings = {{"part=sink", "the sink's slots are not seen"},
                       {"part=softcap", "the cap is left out"},
                       {"part=heads", "query heads 8 and up of a group are not stored"},
                       {"part=head_dim", "channels behind the last whole 32 are not stored"},
                       {"content=stale", "what is not stored keeps the step before"},
                       {"content=zero", "what is not stored is zero"},
                       {"content=nan", "what is not stored is NaN"}},
          .look_alikes = {{"F15", "one slot more or less around the length: F15 begins at it, F16 does not depend on it"}}};
}

}  // namespace culprit::entries
