#include "fault/entries.h"

namespace culprit::entries {
namespace {

Tensor row_zero_everywhere(const Tensor& x) {
  auto values = x.values();
  const auto row = values.size() / static_cast<std::size_t>(x.dim(0));
  for (std::size_t i = row; i < values.size(); ++i) values[i] = values[i % row];
  return Tensor::from_values(x.dtype(), x.shape(), values);
}

Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  if (call.context.at.rows() < 2) return std::nullopt;
  if (spec.parameter("tokens", "any") == "one" && call.context.at.tokens() != 1) return std::nullopt;
  auto broken = call;
  broken.inputs.at(1) = row_zero_everywhere(call.inputs.at(1));
  broken.inputs.at(2) = row_zero_everywhere(call.inputs.at(2));
  return altered(std::move(broken));
}

}  // namespace

FaultEntry f04_batch_zero_for_all() {
  return {.id = "F04",
          .ops = {Op::sdpa},
          .title = "attention takes the keys and values of batch row 0 for every row",
          .mechanism = "the batch stride of keys and values is ignored: every row attends over row 0's cache",
          .trigger = "more than one row",
          .public_example = "mlx 4431",
          .parameters = {{"tokens", {"any", "one"}}},
          .breaks = breaks,
          .meanings = {{"tokens=any", "at any step"}, {"tokens=one", "at steps of a single token only"}},
          .look_alikes = {{"F22", "one row: right under F04, wrong under F22"},
                          {"F01", "k_rope of rows > 0: wrong under F01, right under F04, whose output is the first that is wrong"},
                          {"F03", "linear layers of rows > 0: wrong under F03, right under F04"},
                          {"F19", "a batch whose rows stay: F04 is wrong there too, F19 needs rows that join or leave"}}};
}

}  // namespace culprit::entries
