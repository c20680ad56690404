#include "fault/packed_call.h"

#include <cassert>
#include <cstddef>
#include <utility>

namespace culprit {

OpCall with_packed(OpCall call, Weight packed) {
  call.context.weight = packed.to_f32();
  call.packed = std::make_shared<const Weight>(std::move(packed));
  return call;
}

std::vector<OpCall> calls_by_row(const OpCall& call) {
  const auto& at = call.context.at;
  std::vector<OpCall> calls;
  for (std::int64_t row = 0; row < call.inputs.at(0).dim(0); ++row) {
    auto& one = calls.emplace_back(call);
    for (auto& input : one.inputs) input = input.sliced(0, row, row + 1);
    one.result = call.result.sliced(0, row, row + 1);
    one.context.at = {};
    const auto place = static_cast<std::size_t>(row);
    if (place < at.sequence.size()) one.context.at.sequence = {at.sequence[place]};
    if (place < at.position.size()) one.context.at.position = {at.position[place]};
    if (place < at.slot.size()) one.context.at.slot = {at.slot[place]};
  }
  return calls;
}

std::int64_t tokens_of_input(const OpCall& call) { return call.inputs.at(0).dim(-2); }

Tensor misread_scales(const Tensor& scales, const std::string& how) {
  const auto right = scales.values();
  const auto plane = scales.contiguous();
  const auto bytes = plane.contiguous_bytes();
  const auto groups = static_cast<std::size_t>(scales.dim(-1));
  auto wrong = right;
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    if (how == "one") wrong[i] = 1;
    if (how == "raw_byte") wrong[i] = static_cast<double>(std::to_integer<unsigned>(bytes[i]));
    if (how == "quarter") wrong[i] = right[i - i % groups + i % groups / 4];
    if (how == "neighbour" && i + 1 < wrong.size()) wrong[i] = right[i + 1];
  }
  return Tensor::from_values(scales.dtype(), scales.shape(), wrong);
}

}  // namespace culprit
