#include "fault/entries.h"

namespace culprit::entries {
namespace {

/// Query head h reads kv head h mod kv_heads instead of h / (heads / kv_heads): a call whose query heads are permuted, output undone.
Result<std::optional<Broken>> tiled(const OpCall& call) {
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

/// Rows of a head, in the order of the other pairing: those of channels (i, i + half) become (2i, 2i + 1), or the reverse.
Tensor in_the_other_pairing(const Tensor& weight, std::int64_t channels, const RopeFacts& rope) {
  auto permuted = weight.copy();
  const auto rotated = std::min<std::int64_t>(channels, rope.dims);
  auto shape = weight.shape();
  shape.resize(2, 1);
  const auto element = [&](std::int64_t row, std::int64_t column) {
    return weight.rank() == 1 ? weight.at({row}) : weight.at({row, column});
  };
  for_each_index(shape, [&](std::span<const std::int64_t> i) {
    const auto channel = i[0] % channels, half = rotated / 2;
    if (channel >= rotated) return;
    const auto interleaved = channel < half ? 2 * channel : 2 * (channel - half) + 1, halved = channel % 2 * half + channel / 2;
    const auto from = i[0] - channel + (rope.pairing == RopePairing::half ? halved : interleaved);
    if (weight.rank() == 1)
      permuted.set({i[0]}, element(from, 0));
    else
      permuted.set(i, element(from, i[1]));
  });
  return permuted;
}

Result<std::optional<Broken>> permuted_rows(const OpCall& call) {
  const auto& rope = rope_of(*call.node, *call.context.facts);
  const auto channels = call.context.weight.dim(0) / std::max(1, call.node->heads_out);
  auto broken = call;
  broken.context.weight = in_the_other_pairing(call.context.weight, channels, rope);
  if (!call.context.bias.empty()) broken.context.bias = in_the_other_pairing(call.context.bias, channels, rope);
  return altered(std::move(broken));
}

bool concerns(const FaultSpec& spec, const Node& node) {
  const bool rows = spec.parameter("heads", "tiled") == "rows_permuted";
  return rows == (node.op == Op::linear) && (node.op != Op::linear || tap_role(node.output) == "k");
}

Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  if (!concerns(spec, *call.node)) return std::nullopt;
  return call.node->op == Op::linear ? permuted_rows(call) : tiled(call);
}

}  // namespace

FaultEntry f22_kv_heads_tiled() {
  return {
      .id = "F22",
      .ops = {Op::sdpa, Op::linear},
      .title = "kv heads are tiled instead of repeated, or the rows of their weight are permuted",
      .mechanism =
          "query head h reads kv head h mod kv_heads instead of h div group (tiled); or the rows of the k projection lie in the order "
          "of the other pairing of RoPE (rows_permuted)",
      .trigger = "grouped-query attention (tiled); always, keys only (rows_permuted)",
      .public_example = "TinyLlama 24",
      .parameters = {{"heads", {"tiled", "rows_permuted"}}},
      .breaks = breaks,
      .concerns = concerns,
      .meanings = {{"heads=tiled", "query head h reads kv head h mod kv_heads"},
                   {"heads=rows_permuted", "the rows of the k projection lie in the order of the other pairing of RoPE"}},
      .look_alikes = {{"F04", "one row: wrong under F22, right under F04"}, {"F02", "the inputs made contiguous: F02 goes, F22 stays"}}};
}

}  // namespace culprit::entries
