#include "fault/entries.h"

namespace culprit::entries {
namespace {

// Row i of the batch reads what row i of the last step's batch had cached, counted from its newest token back; new tokens are its own.
Result<std::optional<Broken>> breaks(const FaultSpec&, const OpCall& call) {
  const auto before = cached_tokens(call);
  if (!call.rows_changed || before == 0 || call.previous.rank() != 4 || !appends(call)) return std::nullopt;
  auto output = call.result.copy();
  const auto held = call.previous.dim(2);
  const auto rows = std::min(output.dim(0), call.previous.dim(0)), slots = std::min(before, held);
  for_each_index({rows, output.dim(1), slots, output.dim(3)}, [&](std::span<const std::int64_t> i) {
    output.set({i[0], i[1], before - slots + i[2], i[3]}, call.previous.at({i[0], i[1], held - slots + i[2], i[3]}));
  });
  return exactly(std::move(output), call);
}

}  // namespace

FaultEntry f19_block_table_of_another_step() {
  return {.id = "F19",
          .ops = {Op::cache_write},
          .title = "a step reads the cache by the rows of the step before",
          .mechanism = "rows joined or left, but each row still reads the cache that lay at its index before: that of another sequence",
          .trigger = "a step before which rows joined or left the batch",
          .public_example = "vllm 45357",
          .parameters = {},
          .breaks = breaks,
          .look_alikes = {{"F20", "a batch whose rows stay, with a reused prefix: right under F19, wrong under F20"},
                          {"F04", "rows that stay: right under F19, wrong under F04"},
                          {"F23", "rows that stay, a draft taken back: right under F19, wrong under F23"}}};
}

}  // namespace culprit::entries
