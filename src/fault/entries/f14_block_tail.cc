#include <limits>

#include "fault/entries.h"

namespace culprit::entries {
namespace {

constexpr std::int64_t kBlock = 16;  // slots: what paged caches have

/// What the slots from the live ones to the end of their block hold.
Tensor tail(const OpCall& call, std::size_t input, const std::string& content) {
  const auto& cache = call.inputs.at(input);
  auto shape = cache.shape();
  shape[2] = (kBlock - shape[2] % kBlock) % kBlock;
  const bool is_nan = content == "nan" || (content == "stale" && call.poisoned);
  auto slots = Tensor::from_values(
      cache.dtype(), shape,
      std::vector<double>(static_cast<std::size_t>(element_count(shape)), is_nan ? std::numeric_limits<double>::quiet_NaN() : 0.0));
  const bool is_known = content == "stale" && call.behind.size() >= input && call.behind[input - 1].rank() == 4;
  if (!is_known) return slots;
  const auto& stale = call.behind[input - 1];
  for_each_index({shape[0], shape[1], std::min(shape[2], stale.dim(2)), shape[3]},
                 [&](std::span<const std::int64_t> i) { slots.set(i, stale.at(i)); });
  return slots;
}

Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  if (call.context.at.tokens() != 1 || call.inputs.at(1).dim(2) % kBlock == 0) return std::nullopt;
  const auto content = spec.parameter("content", "stale");
  const auto keys = tail(call, 1, content), values = tail(call, 2, content);
  return altered(with_more_slots(call, keys, values, std::vector<std::int64_t>(call.context.at.slot.size(), keys.dim(2))));
}

}  // namespace

FaultEntry f14_block_tail() {
  return {.id = "F14",
          .ops = {Op::sdpa},
          .title = "the tail of the last block is not masked",
          .mechanism =
              "attention reads the slots behind the live ones up to the end of their block of 16: tokens that were taken back where there "
              "were any, else fresh memory (stale), zeros, or NaN",
          .trigger = "a single-token step whose live slots do not end with a block",
          .public_example = "vllm 43961",
          .parameters = {{"content", {"stale", "zero", "nan"}}},
          .breaks = breaks,
          .meanings = {{"content=stale", "tokens that were taken back, where there were any, else fresh memory"},
                       {"content=zero", "zeros"},
                       {"content=nan", "NaN"}},
          .look_alikes = {{"F15", "live slots that end with a block of 16: right under F14; the same number of splits: wrong under F15"},
                          {"F20", "the cache that attention reads: right under F14, foreign under F20"}}};
}

}  // namespace culprit::entries
