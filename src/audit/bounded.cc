#include "audit/bounded.h"

#include <limits>

#include "audit/ops/linear.h"
#include "audit/ops/op_bounds.h"
#include "audit/quantized_cache.h"
#include "decode/expert_ops.h"

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
    case Op::multiply:
      return multiply_bounds(call);
    case Op::sigmoid:
      return sigmoid_bounds(call);
    case Op::silu:
      return silu_bounds(call);
    case Op::route:
      return route_bounds(call);
    case Op::expert_sum:
      return expert_sum_bounds(call);
    case Op::causal_conv:
      return causal_conv_bounds(call);
    case Op::l2_norm:
      return l2_norm_bounds(call);
    case Op::delta_decay:
      return delta_decay_bounds(call);
    case Op::delta_state:
      return delta_state_bounds(call);
    case Op::delta_out:
      return delta_out_bounds(call);
    case Op::slice:
    case Op::expert_linear:
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

/// Each expert's vectors as a linear op of their own.
Result<Bounded> bounded_expert_linear(const Node& node, const std::vector<Array>& inputs, const NodeContext& context, DType dtype,
                                      const Arithmetic& arithmetic, const Tensor& magnitude) {
  Bounded bounded;
  CULPRIT_TRY(bounded.value, evaluate_node(node, inputs, context));  // its shape, and whether the inputs fit
  const auto& x = inputs[0];
  const auto in = static_cast<std::ptrdiff_t>(context.weight.dim(2)), out = static_cast<std::ptrdiff_t>(context.weight.dim(1));
  const auto count = bounded.value.values.size();
  bounded.bound.resize(count);
  const auto place = [out](const std::vector<double>& part, std::size_t i, std::vector<double>& whole, std::size_t to) {
    std::copy_n(part.begin() + static_cast<std::ptrdiff_t>(i) * out, out, whole.begin() + static_cast<std::ptrdiff_t>(to) * out);
  };
  for (const auto& batch : expert_batches(x, inputs[1], node.experts)) {
    std::vector<double> given;
    for (const auto from : batch.from) {
      const auto begin = x.values.begin() + static_cast<std::ptrdiff_t>(from) * in;
      given.insert(given.end(), begin, begin + in);
    }
    const auto done = bounded_linear(given, std::ssize(batch.to), expert_weight(context.weight, batch.expert),
                                     magnitude.empty() ? Tensor() : expert_weight(magnitude, batch.expert), {}, dtype, arithmetic, 1);
    if (!done.standard.empty()) bounded.standard.resize(count);
    for (std::size_t i = 0; i < batch.to.size(); ++i) {
      place(done.value, i, bounded.value.values, batch.to[i]);
      place(done.bound, i, bounded.bound, batch.to[i]);
      if (!done.standard.empty()) place(done.standard, i, bounded.standard, batch.to[i]);
    }
  }
  return bounded;
}

// What was stored before is moved, with its bound of 0; the new tokens' values and bounds are moved alike.
Result<Bounded> bounded_quantized_write(const Node& node, const std::vector<Array>& inputs, const NodeContext& context, DType dtype) {
  CULPRIT_CHECK(evaluate_node(node, inputs, context));  // shapes that do not fit
  const auto written = to_tensor(inputs.front(), dtype);
  auto stored = quantized_cache_bounds({written, std::vector<bool>(static_cast<std::size_t>(written.count() / written.dim(3)), true)},
                                       context.cache_spec, dtype);
  for (std::size_t i = 0; i < stored.bound.size(); ++i)
    if (stored.untested[i]) stored.bound[i] = std::numeric_limits<double>::infinity();
  NodeContext moving = context;
  moving.cache_spec = {};
  Bounded bounded;
  CULPRIT_TRY(bounded.value, evaluate_node(node, {stored.value}, moving));
  if (moving.cache.rank() > 0) moving.cache = Tensor::zeros(dtype, moving.cache.shape());
  CULPRIT_TRY(auto bounds, evaluate_node(node, {Array{stored.value.shape, std::move(stored.bound)}}, moving));
  bounded.bound = std::move(bounds.values);
  return bounded;
}

}  // namespace

Result<Bounded> bounded_node(const Node& node, const std::vector<Array>& inputs, const NodeContext& context, DType dtype,
                             const Arithmetic& arithmetic, const Tensor& magnitude, const Array* actual) {
  if (node.op == Op::linear) {
    if (inputs.size() != 1) return fail("tensor-layout", node.output + ": expected 1 input, actual " + std::to_string(inputs.size()));
    return bounded_linear_node(node, inputs.front(), context, dtype, arithmetic, magnitude);
  }
  if (node.op == Op::expert_linear && inputs.size() == 2) return bounded_expert_linear(node, inputs, context, dtype, arithmetic, magnitude);
  if (node.op == Op::cache_write && context.cache_spec.quantizes()) return bounded_quantized_write(node, inputs, context, dtype);
  Bounded bounded;
  CULPRIT_TRY(bounded.value, evaluate_node(node, inputs, context));
  const auto inside = node.op == Op::delta_decay ? context.dtype : dtype;  // the dtype that its steps are rounded to, if they are
  const auto declared = units_of(inside, arithmetic);
  if (node.op == Op::route && actual != nullptr && actual->shape == bounded.value.shape)
    bounded.value = route_as_chosen(inputs[0], *actual, node.experts, node.normalised, declared);
  bounded.bound = bounds_of({node, inputs, context, bounded.value, dtype, declared});
  if (node.op == Op::embedding)  // a table that is exact in f32 is read in the dtype of the run
    for (auto& value : bounded.value.values) value = round_to(dtype, value);
  if (declared.in_dtype && node.op != Op::rope)
    bounded.standard = bounds_of({node, inputs, context, bounded.value, dtype, units_of(inside, standard_arithmetic(arithmetic))});
  const bool has_sigmoid = (node.op == Op::swiglu && !node.precise) || node.op == Op::sigmoid || node.op == Op::silu;
  if (has_sigmoid) bounded.may_vanish = swiglu_may_vanish(inputs.front(), dtype);
  return bounded;
}

}  // namespace culprit
