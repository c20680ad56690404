#include "fault/entries.h"

namespace culprit::entries {
namespace {

// Input `operand` is read from its first element on as if it were row-major, strides ignored.
Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  const std::size_t operand = call.node->op == Op::rope ? 0 : (spec.parameter("operand", "v") == "k" ? 1 : 2);
  if (call.node->op == Op::rope && spec.parameter("operand", "v") != "v") return std::nullopt;  // one operand: one hypothesis
  const auto& x = call.inputs.at(operand);
  if (x.layout().is_contiguous()) return std::nullopt;
  auto broken = call;
  broken.inputs[operand] = Tensor::from_values(x.dtype(), x.shape(), x.linear_values(x.count()));
  return altered(std::move(broken));
}

}  // namespace

FaultEntry f02_view_read_as_dense() {
  return {.id = "F02",
          .ops = {Op::rope, Op::sdpa},
          .title = "a transposed or sliced view is read as if it were dense",
          .mechanism = "the op ignores its input's strides and reads the storage linearly from the view's first element",
          .trigger = "the input is a view that is not row-contiguous",
          .public_example = "pytorch 181133",
          .parameters = {{"operand", {"v", "k"}}},
          .breaks = breaks,
          .meanings = {{"operand=v", "rope: its input; attention: the values"}, {"operand=k", "attention: the keys"}},
          .look_alikes = {
              {"F22", "the inputs made contiguous: F02 goes, F22 stays"},
              {"F01", "the input made contiguous, nothing else changed: F02 goes, F01 stays"},
              {"F06", "a read of the cache by its strides: right under F02, whose reader is wrong, and wrong under F06, whose writer is"}}};
}

}  // namespace culprit::entries
