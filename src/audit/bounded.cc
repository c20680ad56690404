#include "audit/bounded.h"

#include "audit/ops/linear.h"
#include "audit/ops/op_bounds.h"

namespace culprit {
namespace {

std::vector<double> bounds_of(const BoundCall& call) {
  switch (call.node.op) {
    case Op::scale:
      return scale_bounds(call);
    case Op::rms_norm:
      return rms_norm_bounds(call);
    case Op::rope:
      return rope_bounds(call);
    case Op::sdpa:
      return sdpa_bounds(call);
    case Op::swiglu:
      return swiglu_bounds(call);
    case Op::geglu:
      return geglu_bounds(call);
    case Op::add:
      return add_bounds(call);
    case Op::softcap:
      return softcap_bounds(call);
    case Op::embedding:
    case Op::cache_write:
    case Op::linear:
    case Op::select_head:
      break;
  }
  return std::vector<double>(call.value.values.size(), 0.0);  // values are moved, not computed
}

Result<Bounded> bounded_linear_node(const Node& node, const Array& input, const NodeContext& context, DType dtype,
                                    const Arithmetic& arithmetic, const Tensor& magnitude) {
  const Array x = input.shape.size() == 4 ? merge_heads(input) : input;
  const auto& weight = context.weight;
  if (weight.rank() != 2 || x.shape.size() != 3 || x.shape[2] != weight.dim(1))
    return fail("tensor-layout", node.output + ": the input is " + to_string(x.shape) + " and the weight " + to_string(weight.shape()));
  if (!context.bias.empty() && context.bias.shape() != Shape{weight.dim(0)})
    return fail("tensor-layout",
                node.output + ": the bias is " + to_string(context.bias.shape()) + " and the weight " + to_string(weight.shape()));
  auto done = bounded_linear(x.values, x.shape[0] * x.shape[1], weight.contiguous(), magnitude, context.bias, dtype, arithmetic);
  const Shape shape = {x.shape[0], x.shape[1], weight.dim(0)};
  const auto arranged = [&](std::vector<double> values) {
    Array array{shape, std::move(values)};
    return node.heads_out > 0 && array.count() > 0 ? split_heads(array, node.heads_out) : array;
  };
  Bounded bounded;
  bounded.value = arranged(std::move(done.value));
  bounded.bound = arranged(std::move(done.bound)).values;
  if (!done.standard.empty()) bounded.standard = arranged(std::move(done.standard)).values;
  return bounded;
}

}  // namespace

Result<Bounded> bounded_node(const Node& node, const std::vector<Array>& inputs, const NodeContext& context, DType dtype,
                             const Arithmetic& arithmetic, const Tensor& magnitude) {
  if (node.op == Op::linear) {
    if (inputs.size() != 1) return fail("tensor-layout", node.output + ": expected 1 input, actual " + std::to_string(inputs.size()));
    return bounded_linear_node(node, inputs.front(), context, dtype, arithmetic, magnitude);
  }
  Bounded bounded;
  CULPRIT_TRY(bounded.value, evaluate_node(node, inputs, context));
  const auto declared = units_of(dtype, arithmetic);
  bounded.bound = bounds_of({node, inputs, context, bounded.value, dtype, declared});
  if (node.op == Op::embedding)  // a table that is exact in f32 is read in the dtype of the run
    for (auto& value : bounded.value.values) value = round_to(dtype, value);
  if (declared.in_dtype && node.op != Op::rope)
    bounded.standard = bounds_of({node, inputs, context, bounded.value, dtype, units_of(dtype, standard_arithmetic(arithmetic))});
  if (node.op == Op::swiglu) bounded.may_vanish = swiglu_may_vanish(inputs.front(), dtype);
  return bounded;
}

}  // namespace culprit
