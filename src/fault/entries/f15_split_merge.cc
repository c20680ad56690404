#include <cmath>

#include "decode/ops.h"
#include "fault/entries.h"

namespace culprit::entries {
namespace {

constexpr std::int64_t kSplits = 4;  // a fixed grid: short caches leave some empty

std::int64_t split_size(std::int64_t slots) { return (slots + kSplits - 1) / kSplits; }

/// Which slots of each row its token sees in split `index`, [row, 1, slot].
std::vector<std::uint8_t> seen_in_split(const std::vector<std::uint8_t>& visible, std::int64_t slots, std::int64_t index) {
  auto seen = visible;
  const auto begin = index * split_size(slots);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const auto slot = static_cast<std::int64_t>(i) % slots;
    if (slot < begin || slot >= begin + split_size(slots)) seen[i] = 0;
  }
  return seen;
}

bool sees_any(const std::vector<std::uint8_t>& seen, std::int64_t row, std::int64_t slots) {
  const auto begin = seen.begin() + row * slots;
  return std::any_of(begin, begin + slots, [](auto sees) { return sees != 0; });
}

/// An empty split counts with the log-sum-exp 0 and the output 0 of its fresh buffers: as a slot whose key and value are 0.
Result<std::optional<Broken>> with_empty_splits(const OpCall& call, const std::vector<std::uint8_t>& visible, std::int64_t slots) {
  std::vector<std::int64_t> empty(call.context.at.slot.size(), 0);
  for (std::int64_t split = 0; split < kSplits; ++split) {
    const auto seen = seen_in_split(visible, slots, split);
    for (std::size_t row = 0; row < empty.size(); ++row) empty[row] += !sees_any(seen, static_cast<std::int64_t>(row), slots);
  }
  const auto most = *std::ranges::max_element(empty);
  if (most == 0) return std::nullopt;
  const auto zeros = [&](const Tensor& cache) {
    auto shape = cache.shape();
    shape[2] = most;
    return Tensor::zeros(cache.dtype(), shape);
  };
  return altered(with_more_slots(call, zeros(call.inputs.at(1)), zeros(call.inputs.at(2)), empty));
}

/// Log of the sum of exp(score) over the slots that a head of a row sees.
double log_sum_exp(const OpCall& call, const std::vector<std::uint8_t>& seen, std::int64_t row, std::int64_t head) {
  const auto &q = call.inputs.at(0), &k = call.inputs.at(1);
  const auto kv_head = head / (q.dim(1) / k.dim(1)), slots = k.dim(2);
  std::vector<double> scores;
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    if (seen[static_cast<std::size_t>(row * slots + slot)] == 0) continue;
    double score = 0;
    for (std::int64_t channel = 0; channel < q.dim(3); ++channel)
      score += q.at({row, head, 0, channel}) * k.at({row, kv_head, slot, channel});
    scores.push_back(score * attention_scale(*call.context.facts));
  }
  const auto most = *std::ranges::max_element(scores);
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - most);
  return most + std::log(sum);
}

/// Each head's partial outputs are weighed by the log-sum-exp of the next head.
Result<std::optional<Broken>> with_another_heads_weights(const OpCall& call, const std::vector<std::uint8_t>& visible, std::int64_t slots) {
  const auto &q = call.inputs.at(0), &v = call.inputs.at(2);
  const auto heads = q.dim(1);
  Array merged{{q.dim(0), heads, 1, v.dim(3)}, {}};
  merged.values.assign(static_cast<std::size_t>(element_count(merged.shape)), 0.0);
  std::vector<double> total(static_cast<std::size_t>(q.dim(0) * heads), 0.0);
  std::vector<double> whole;
  for (std::int64_t row = 0; row < q.dim(0); ++row)
    for (std::int64_t head = 0; head < heads; ++head)
      whole.push_back(sees_any(visible, row, slots) ? log_sum_exp(call, visible, row, head) : 0.0);
  const auto queries = to_array(q), keys = to_array(call.inputs.at(1)), values = to_array(v);
  for (std::int64_t split = 0; split < kSplits; ++split) {
    const auto seen = seen_in_split(visible, slots, split);
    const auto partial = sdpa(queries, keys, values, attention_scale(*call.context.facts), seen);
    for (std::int64_t row = 0; row < q.dim(0); ++row) {
      if (!sees_any(seen, row, slots)) continue;
      for (std::int64_t head = 0; head < heads; ++head) {
        const auto other = (head + 1) % heads;
        const double weight = std::exp(log_sum_exp(call, seen, row, other) - whole[static_cast<std::size_t>(row * heads + other)]);
        total[static_cast<std::size_t>(row * heads + head)] += weight;
        for (std::int64_t channel = 0; channel < v.dim(3); ++channel) {
          const auto at = static_cast<std::size_t>((row * heads + head) * v.dim(3) + channel);
          merged.values[at] += weight * partial.values[at];
        }
      }
    }
  }
  for (std::size_t i = 0; i < merged.values.size(); ++i) merged.values[i] /= total[i / static_cast<std::size_t>(v.dim(3))];
  return exactly(to_tensor(merged, call.dtype), call);
}

Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  const auto slots = call.inputs.at(1).dim(2);
  const auto from = spec.parameter("from", "3") == "3" ? 3 : 5;
  if (call.context.at.tokens() != 1 || slots < from) return std::nullopt;
  const auto visible = visible_slots(call.context.at, call.node->window);
  if (spec.parameter("merge", "empty") == "empty") return with_empty_splits(call, visible, slots);
  if (call.inputs.at(0).dim(1) == 1) return std::nullopt;
  return with_another_heads_weights(call, visible, slots);
}

}  // namespace

FaultEntry f15_split_merge() {
  return {.id = "F15",
          .ops = {Op::sdpa},
          .title = "attention's splits over the cache are merged wrongly",
          .mechanism =
              "the cache is attended to in 4 splits, whose merge counts empty ones as if their log-sum-exp were 0 (empty), or weighs a "
              "head's partial outputs by the log-sum-exp of the next head (head)",
          .trigger = "a single-token step with so many slots; empty: of which a split has none that is seen",
          .public_example = "vllm 47188, 22003",
          .parameters = {{"merge", {"empty", "head"}}, {"from", {"3", "5"}}},
          .breaks = breaks,
          .meanings = {{"merge=empty", "an empty split counts as if its log-sum-exp were 0"},
                       {"merge=head", "the partial outputs of a head are weighed by the log-sum-exp of the next"},
                       {"from=3", "from three slots on"},
                       {"from=5", "from five slots on"}},
          .look_alikes = {{"F14", "live slots that end with a block of 16: right under F14; the same number of splits: wrong under F15"},
                          {"F16", "one slot more or less around the length: F15 begins at it, F16 does not depend on it"},
                          {"F18", "the cache and the rotated keys: right under F15, wrong under F18"}}};
}

}  // namespace culprit::entries
