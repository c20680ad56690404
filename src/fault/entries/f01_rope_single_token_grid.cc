#include <limits>

#include "fault/entries.h"

namespace culprit::entries {
namespace {

// The single-token path launches N = product of shape[1 .. rank-2) rows, leaving dimension 0 out: a rank-4 [row, head, 1, channel] input
// has only row 0 rotated; a rank-3 [row * head, 1, channel] input only its first head. It is taken when the input is row-contiguous,
// there is one token, and the offset has one element. Rotating fewer channels than a head has copies the input first: the content of
// the unwritten part is then the input whatever the buffer held.
Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  const auto& x = call.inputs.at(0);
  if (x.dim(2) != 1 || call.per_row_offset || !x.layout().is_contiguous()) return std::nullopt;
  const auto heads = x.dim(1);
  const std::int64_t written = (call.collapsed_rank == 3 ? 1 : heads) * x.dim(3);
  auto content = spec.parameter("content", "input");
  if (rope_of(*call.node, *call.context.facts).dims < x.dim(3)) content = "input";
  const auto input = x.values();
  const StaleBuffer stale(call);
  auto values = call.result.values();
  for (std::int64_t i = written; i < static_cast<std::int64_t>(values.size()); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (content == "input") values[at] = input[at];
    if (content == "zero") values[at] = 0;
    if (content == "stale") values[at] = stale.at(i);
    if (content == "nan") values[at] = std::numeric_limits<double>::quiet_NaN();
  }
  return exactly(Tensor::from_values(call.dtype, call.result.shape(), values), call);
}

}  // namespace

FaultEntry f01_rope_single_token_grid() {
  return {.id = "F01",
          .ops = {Op::rope},
          .title = "single-token RoPE rotates only index 0 of dimension 0",
          .mechanism =
              "the single-token path leaves dimension 0 out of its grid: only index 0 of dimension 0 is rotated, the rest of the output is "
              "never written",
          .trigger = "one token, offset with one element, row-contiguous input; rank 4: rows > 0, rank 3 after a collapse: heads > 0",
          .public_example = "mlx 3494, mlx-rs 359",
          .parameters = {{"content", {"input", "zero", "stale", "nan"}}},
          .breaks = breaks,
          .meanings = {{"content=input", "the output's buffer was the input's (donated): the rest is not rotated"},
                       {"content=zero", "a fresh buffer of zeros"},
                       {"content=stale", "what the buffer held: the same tap's output one step before, zeros behind its end"},
                       {"content=nan", "a buffer that was filled with NaN"}},
          .look_alikes = {
              {"F03", "a second batch of the same rows with dense weights: F01 is of RoPE and stays, F03 is of packed weights and goes"},
              {"F04", "k_rope of rows > 0: wrong under F01, right under F04, where attention's output is the first that is wrong"},
              {"F02", "RoPE at L = 1 on a contiguous copy of the input: F01 stays, F02 goes; a strided input cures F01"},
              {"F07", "a per-row offset vector: it cures F01, whose path takes one offset, and not F07, whose positions are wrong"}}};
}

}  // namespace culprit::entries
