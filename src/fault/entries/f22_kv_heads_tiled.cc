#include "fault/entries.h"

namespace culprit::entries {
namespace {

// Query head h reads kv head h mod kv_heads instead of h / (heads / kv_heads): a call whose query heads are permuted, output undone.
Result<std::optional<Broken>> breaks(const FaultSpec&, const OpCall& call) {
  const auto& q = call.inputs.at(0);
  const auto heads = q.dim(1), kv_heads = call.inputs.at(1).dim(1);
  if (kv_heads == 1 || kv_heads == heads) return std::nullopt;
  const auto group = heads / kv_heads;
  auto permuted = call;
  auto queries = q.copy();
  const auto place = [&](std::int64_t head) { return (head % kv_heads) * group + head / kv_heads; };
  const Shape shape = q.shape();
  for_each_index(shape, [&](std::span<const std::int64_t> i) { queries.set({i[0], place(i[1]), i[2], i[3]}, q.at(i)); });
  permuted.inputs[0] = queries;
  CULPRIT_TRY(auto result, evaluate_rounded(permuted));
  auto output = result.copy();
  for_each_index(shape, [&](std::span<const std::int64_t> i) { output.set(i, result.at({i[0], place(i[1]), i[2], i[3]})); });
  return exactly(std::move(output), call);
}

}  // namespace

FaultEntry f22_kv_heads_tiled() {
  return {
      .id = "F22",
      .ops = {Op::sdpa},
      .title = "kv heads are tiled instead of repeated",
      .mechanism = "query head h reads kv head h mod kv_heads instead of h div group",
      .trigger = "grouped-query attention",
      .public_example = "TinyLlama 24",
      .parameters = {},
      .breaks = breaks,
      .look_alikes = {{"F04", "one row: wrong under F22, right under F04"}, {"F02", "the inputs made contiguous: F02 goes, F22 stays"}}};
}

}  // namespace culprit::entries
