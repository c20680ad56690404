#include "engines/ref/ref_backend.h"

#include <fmt/format.h>

#include <cstring>

#include "base/hash.h"
#include "decode/affine_groups.h"
#include "decode/delta_ops.h"
#include "decode/model.h"
#include "decode/node_eval.h"
#include "decode/ops.h"
#include "engines/ref/reversed_linear.h"

namespace culprit::ref {
namespace {

const Tensor& tensor_of(const kit::Array& array) { return *static_cast<const Tensor*>(array.get()); }
kit::Array array_of(Tensor tensor) { return std::make_shared<const Tensor>(std::move(tensor)); }

Tensor dequantised(const kit::BackendWeight& weight) {
  Weight held;
  held.packed = tensor_of(weight.packed);
  held.scales = tensor_of(weight.scales);
  held.biases = tensor_of(weight.biases);
  held.bits = weight.bits;
  held.group = weight.group;
  return held.to_f32();
}

/// Copies `part` into `whole` from `begin` on along `axis`; whole is contiguous and of the same dtype.
void put(Tensor& whole, const Tensor& part, int axis, std::int64_t begin) {
  const auto source = part.contiguous();
  if (source.count() == 0) return;
  std::int64_t outer = 1, inner = 1;  // elements before and behind the axis
  for (int i = 0; i < part.rank(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : part.dim(i);
  const auto element = static_cast<std::int64_t>(size_of(whole.dtype()));
  const auto bytes = part.dim(axis) * inner * element;
  const auto* from = source.contiguous_bytes().data();
  auto* to = whole.mutable_bytes().data() + begin * inner * element;
  for (std::int64_t i = 0; i < outer; ++i)
    std::memcpy(to + i * whole.dim(axis) * inner * element, from + i * bytes, static_cast<std::size_t>(bytes));
}

Result<kit::Array> attend(const kit::OpRequest& request, const std::vector<Array>& inputs) {
  const auto rows = static_cast<std::size_t>(inputs[0].shape[0]), tokens = static_cast<std::size_t>(inputs[0].shape[2]);
  const auto slots = static_cast<std::size_t>(inputs[1].shape[2]);
  const auto mask = request.mask == nullptr ? std::vector<double>() : tensor_of(request.mask).values();
  std::vector<std::uint8_t> visible(rows * tokens * slots);
  for (std::size_t i = 0; i < visible.size(); ++i) {
    const bool sees = mask.empty() ? i % slots + tokens <= slots + i / slots % tokens : mask[i % mask.size()] != 0;
    visible[i] = sees ? 1 : 0;
  }
  return array_of(to_tensor(sdpa(inputs[0], inputs[1], inputs[2], request.scale, visible), request.dtype));
}

/// Whether each of `count` tokens is padding by the request's mask.
std::vector<std::uint8_t> padding_of(const kit::OpRequest& request, std::size_t count) {
  std::vector<std::uint8_t> padding(count, 0);
  if (request.mask == nullptr) return padding;
  const auto is_token = tensor_of(request.mask).values();
  for (std::size_t i = 0; i < count; ++i) padding[i] = is_token[i] == 0 ? 1 : 0;
  return padding;
}

Result<kit::Array> convolve(const kit::OpRequest& request, Array window, const Tensor& weight) {
  const auto channels = static_cast<std::size_t>(window.shape[3]);
  const auto padding = padding_of(request, window.values.size() / channels);
  for (std::size_t i = 0; i < window.values.size(); ++i)
    if (padding[i / channels] != 0) window.values[i] = 0;
  return array_of(to_tensor(causal_conv(window, weight.values()), request.dtype));
}

Result<kit::Array> next_states(const kit::OpRequest& request, const std::vector<Array>& inputs) {
  const auto dtype = output_dtype(*request.node, request.dtype);
  const auto& v = inputs[1];
  const auto padding = padding_of(request, static_cast<std::size_t>(v.shape[0] * v.shape[2]));
  return array_of(
      to_tensor(delta_state(inputs[0], v, inputs[2], inputs[3], inputs.size() > 4 ? inputs[4] : Array{}, padding, dtype), dtype));
}

}  // namespace

Json RefBackend::hello() {
  Json ops = Json::object();
  for (const auto op : all_ops()) {
    Json arithmetic = Json::object();
    for (const auto& variant : variants(op)) arithmetic[variant] = {{"accumulate", variant == "reversed" ? "f32" : "f64"}};
    ops[std::string(name_of(op))] = {{"variants", variants(op)}, {"arithmetic", arithmetic}};
  }
  const auto hash = sha256_file(program_);
  return {{"engine", "ref"},
          {"version", CULPRIT_VERSION},
          {"library", program_},
          {"library_sha256", hash ? *hash : std::string()},
          {"device", "cpu"},
          {"switches", Json::object()},
          {"dtypes", Json::array({"f64", "f32", "bf16", "f16"})},
          {"weight_sources", Json::array({"culprit"})},
          {"ops", ops}};
}

std::vector<std::string> RefBackend::variants(Op op) {
  switch (op) {
    case Op::linear:
      return {"dense", "reversed", "quantized"};
    case Op::expert_linear:
      return {"dense", "quantized"};
    case Op::rope:
    case Op::sdpa:
    case Op::rms_norm:
      return {"fused", "composed"};
    default:
      return {"fused"};
  }
}

Result<kit::Array> RefBackend::from_host(const Tensor& tensor) { return array_of(tensor.with_storage_id(new_storage_id())); }
Result<Tensor> RefBackend::to_host(const kit::Array& array) { return tensor_of(array); }

Result<kit::Array> RefBackend::apply(const kit::OpRequest& request) {
  const auto& node = *request.node;
  if (request.variant == "reversed")
    return array_of(reversed_linear(tensor_of(request.inputs[0]), tensor_of(request.weight->dense),
                                    request.bias == nullptr ? Tensor() : tensor_of(request.bias), request.dtype));
  std::vector<Array> inputs;
  for (const auto& input : request.inputs) inputs.push_back(to_array(tensor_of(input)));

  // Rank 3 is one row of row * head "heads": the same values at the same positions.
  const bool collapsed = node.op == Op::rope && inputs[0].shape.size() == 3;
  if (collapsed) inputs[0].shape.insert(inputs[0].shape.begin(), 1);
  NodeContext context;
  context.facts = request.facts;
  context.dtype = request.dtype;
  context.tokens = request.tokens;
  if (request.weight != nullptr)
    context.weight = request.variant == "quantized" ? dequantised(*request.weight) : tensor_of(request.weight->dense);
  if (request.bias != nullptr) context.bias = tensor_of(request.bias);
  if (node.op == Op::sdpa) return attend(request, inputs);
  if (node.op == Op::causal_conv) return convolve(request, inputs[0], context.weight);
  if (node.op == Op::delta_state) return next_states(request, inputs);
  if (node.op == Op::rope) {
    const auto rows = inputs[0].shape[0], tokens = inputs[0].shape[2];
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto first = request.offset[request.offset.size() == 1 ? 0 : static_cast<std::size_t>(row)];
      context.at.sequence.push_back(static_cast<int>(row));
      auto& positions = context.at.position.emplace_back();
      for (std::int64_t i = 0; i < tokens; ++i) positions.push_back(first + i);
    }
  }
  Node flat = node;
  flat.heads_out = 0;  // the kit splits heads, as a view
  CULPRIT_TRY(auto value, evaluate_node(flat, inputs, context));
  if (collapsed) value.shape.erase(value.shape.begin());
  return array_of(to_tensor(value, output_dtype(node, request.dtype)));
}

Result<kit::Array> RefBackend::reshape(const kit::Array& x, const Shape& shape) { return array_of(tensor_of(x).reshaped(shape)); }
Result<kit::Array> RefBackend::swap_axes(const kit::Array& x, int axis_a, int axis_b) {
  return array_of(tensor_of(x).transposed(axis_a, axis_b));
}

Result<kit::Array> RefBackend::concatenate(std::span<const kit::Array> parts, int axis) {
  auto shape = tensor_of(parts[0]).shape();
  shape[static_cast<std::size_t>(axis)] = 0;
  for (const auto& part : parts) shape[static_cast<std::size_t>(axis)] += tensor_of(part).dim(axis);
  auto whole = Tensor::zeros(tensor_of(parts[0]).dtype(), shape);
  std::int64_t begin = 0;
  for (const auto& part : parts) {
    put(whole, tensor_of(part), axis, begin);
    begin += tensor_of(part).dim(axis);
  }
  return array_of(std::move(whole));
}

Result<kit::Array> RefBackend::slice(const kit::Array& x, int axis, std::int64_t begin, std::int64_t end) {
  return array_of(tensor_of(x).sliced(axis, begin, end));
}

Result<kit::Array> RefBackend::slice_update(const kit::Array& x, const kit::Array& update, int axis, std::int64_t begin) {
  auto whole = tensor_of(x).copy();
  put(whole, tensor_of(update), axis, begin);
  return array_of(std::move(whole));
}

Result<kit::Array> RefBackend::zeros(const Shape& shape, DType dtype) { return array_of(Tensor::zeros(dtype, shape)); }
Shape RefBackend::shape(const kit::Array& x) { return tensor_of(x).shape(); }

Result<std::vector<kit::Array>> RefBackend::quantise(const kit::Array& x, int bits, int group) {
  auto groups = quantise_groups(tensor_of(x), {.kind = CacheKind::quantized, .bits = bits, .group = group});
  return std::vector{array_of(std::move(groups.packed)), array_of(std::move(groups.scales)), array_of(std::move(groups.biases))};
}

Result<kit::Array> RefBackend::dequantise(std::span<const kit::Array> planes, int bits, int group) {
  const AffineGroups groups{tensor_of(planes[0]), tensor_of(planes[1]), tensor_of(planes[2])};
  return array_of(dequantise_groups(groups, {.kind = CacheKind::quantized, .bits = bits, .group = group}));
}

Result<std::vector<std::pair<std::string, Weight>>> RefBackend::load_checkpoint(const std::string&) {
  return fail("not-supported", "the reference engine has no loader of its own: culprit's reader is the reference");
}

}  // namespace culprit::ref
