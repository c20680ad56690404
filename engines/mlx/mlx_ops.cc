#include "mlx_ops.h"

#include <fmt/format.h>

#include <optional>

#include "decode/ops.h"
#include "mlx_delta.h"
#include "mlx_experts.h"
#include "mlx_rope.h"

namespace culprit::mlx_engine {
namespace {

const mx::array& input(const kit::OpRequest& request, std::size_t index) { return unwrap(request.inputs[index]); }

mx::array f32(const mx::array& x) { return mx::astype(x, mx::float32); }

Result<mx::array> dense_weight(const kit::OpRequest& request) {
  if (request.weight == nullptr || request.weight->dense == nullptr) return fail("not-supported", "the op has no dense weight");
  return unwrap(request.weight->dense);
}

Result<mx::array> embedding_take(const kit::OpRequest& request) {
  CULPRIT_TRY(const auto table, dense_weight(request));
  std::vector<std::int32_t> ids;
  for (const auto& row : request.tokens) ids.insert(ids.end(), row.begin(), row.end());
  const auto rows = static_cast<std::int64_t>(request.tokens.size());
  const auto per_row = rows == 0 ? 0 : static_cast<std::int64_t>(request.tokens[0].size());
  if (rows * per_row != static_cast<std::int64_t>(ids.size())) return fail("tokens-invalid", "rows of tokens have unequal lengths");
  CULPRIT_TRY(auto shape, to_mlx(Shape{rows, per_row}));
  return mx::take(table, mx::array(ids.begin(), std::move(shape), mx::int32), 0);
}

// A constant of the graph, in the dtype of the array that it meets.
mx::array constant(double value, const mx::array& beside) { return mx::array(static_cast<float>(value), beside.dtype()); }

Result<mx::array> scale_eager(const kit::OpRequest& request) {
  if (!request.node->weight.empty()) {
    CULPRIT_TRY(const auto weight, dense_weight(request));
    return mx::multiply(input(request, 0), weight);
  }
  return mx::multiply(input(request, 0), constant(request.node->factor, input(request, 0)));
}

Result<mx::array> norm_weight(const kit::OpRequest& request) {
  CULPRIT_TRY(auto weight, dense_weight(request));
  return request.node->unit_offset ? mx::add(constant(1, weight), weight) : weight;
}

Result<mx::array> rms_norm_fused(const kit::OpRequest& request) {
  const auto epsilon = static_cast<float>(request.facts->norm_epsilon);
  if (request.node->unscaled) return mx::fast::rms_norm(input(request, 0), std::nullopt, epsilon);
  CULPRIT_TRY(const auto weight, norm_weight(request));
  return mx::fast::rms_norm(input(request, 0), weight, epsilon);
}

Result<mx::array> rms_norm_composed(const kit::OpRequest& request) {
  const auto x = f32(input(request, 0));
  const auto mean = mx::mean(mx::square(x), -1, true);
  const auto inverse = mx::rsqrt(mx::add(mean, mx::array(static_cast<float>(request.facts->norm_epsilon))));
  const auto normed = mx::multiply(x, inverse);
  if (request.node->unscaled) return mx::astype(normed, input(request, 0).dtype());
  CULPRIT_TRY(const auto weight, norm_weight(request));
  return mx::astype(mx::multiply(normed, f32(weight)), input(request, 0).dtype());
}

mx::array product(const kit::OpRequest& request, const mx::array& x, const mx::array& transposed) {
  return request.bias == nullptr ? mx::matmul(x, transposed) : mx::addmm(unwrap(request.bias), x, transposed);
}

Result<mx::array> linear_dense(const kit::OpRequest& request) {
  CULPRIT_TRY(const auto weight, dense_weight(request));
  return product(request, input(request, 0), mx::swapaxes(weight, 0, 1));
}

Result<mx::array> linear_reversed(const kit::OpRequest& request) {
  CULPRIT_TRY(const auto weight, dense_weight(request));
  const auto backwards = mx::arange(weight.shape(1) - 1, -1, -1);
  return product(request, mx::take(input(request, 0), backwards, -1), mx::swapaxes(mx::take(weight, backwards, 1), 0, 1));
}

Result<mx::array> linear_quantized(const kit::OpRequest& request) {
  const auto* weight = request.weight;
  if (weight == nullptr || weight->packed == nullptr) return fail("not-supported", "the weight is not quantised: use linear=dense");
  const auto& x = input(request, 0);
  const auto y = mx::quantized_matmul(x, unwrap(weight->packed), mx::astype(unwrap(weight->scales), x.dtype()),
                                      mx::astype(unwrap(weight->biases), x.dtype()), true, weight->group, weight->bits);
  return request.bias == nullptr ? y : mx::add(y, unwrap(request.bias));
}

// Which slots each token sees, [token, slot]: token t of this step is at slot slots - tokens + t and sees all up to itself.
mx::array causal_mask(int tokens, int slots) {
  const auto own_slot = mx::reshape(mx::arange(slots - tokens, slots, 1), mx::Shape{tokens, 1});
  return mx::less_equal(mx::reshape(mx::arange(0, slots, 1), mx::Shape{1, slots}), own_slot);
}

Result<mx::array> sdpa_fused(const kit::OpRequest& request) {
  const auto &q = input(request, 0), &k = input(request, 1), &v = input(request, 2);
  const auto scale = static_cast<float>(request.scale);
  if (request.mask != nullptr)  // for all heads
    return mx::fast::scaled_dot_product_attention(q, k, v, scale, "array", {mx::expand_dims(unwrap(request.mask), 1)});
  return mx::fast::scaled_dot_product_attention(q, k, v, scale, request.causal && q.shape(2) > 1 ? "causal" : "");
}

Result<mx::array> sdpa_composed(const kit::OpRequest& request) {
  const auto& q = input(request, 0);
  const auto& k = input(request, 1);
  const int rows = q.shape(0), heads = q.shape(1), tokens = q.shape(2), channels = q.shape(3), kv_heads = k.shape(1), slots = k.shape(2);
  if (kv_heads == 0 || heads % kv_heads != 0)
    return fail("tensor-layout", fmt::format("{} query heads do not share {} kv heads evenly", heads, kv_heads));
  // Query heads of one kv head share an axis, so that the kv heads broadcast.
  const auto grouped = mx::reshape(f32(q), mx::Shape{rows, kv_heads, heads / kv_heads, tokens, channels});
  const auto keys = mx::expand_dims(f32(k), 2);
  const auto values = mx::expand_dims(f32(input(request, 2)), 2);
  auto scores = mx::matmul(mx::multiply(grouped, mx::array(static_cast<float>(request.scale))), mx::swapaxes(keys, -1, -2));
  if (request.mask != nullptr || request.causal) {
    const auto visible = request.mask != nullptr ? mx::expand_dims(unwrap(request.mask), {1, 2}) : causal_mask(tokens, slots);
    scores = mx::where(visible, scores, mx::array(-std::numeric_limits<float>::infinity()));
  }
  const auto mixed = mx::matmul(mx::softmax(scores, -1, true), values);
  return mx::astype(mx::reshape(mixed, mx::Shape{rows, heads, tokens, input(request, 2).shape(3)}), q.dtype());
}

Result<mx::array> swiglu_composed(const kit::OpRequest& request) {
  const auto& gate = input(request, 0);
  if (request.node->precise) {
    const auto wide = f32(gate);
    return mx::astype(mx::multiply(mx::multiply(wide, mx::sigmoid(wide)), f32(input(request, 1))), gate.dtype());
  }
  return mx::multiply(mx::multiply(gate, mx::sigmoid(gate)), input(request, 1));
}

Result<mx::array> geglu_composed(const kit::OpRequest& request) {
  const auto& gate = input(request, 0);
  const auto cube = mx::power(gate, constant(3, gate));
  const auto z = mx::multiply(constant(kGeluScale, gate), mx::add(gate, mx::multiply(constant(kGeluCubic, gate), cube)));
  const auto gelu = mx::multiply(mx::multiply(constant(0.5, gate), gate), mx::add(constant(1, gate), mx::tanh(z)));
  return mx::multiply(gelu, input(request, 1));
}

Result<mx::array> softcap_eager(const kit::OpRequest& request) {
  const auto& x = input(request, 0);
  const auto cap = constant(request.node->factor, x);
  return mx::multiply(cap, mx::tanh(mx::divide(x, cap)));
}

Result<mx::array> select_head_view(const kit::OpRequest& request) {
  const auto& x = input(request, 0);
  const int head = request.node->head;
  if (x.ndim() != 4 || head < 0 || head >= x.shape(1)) return fail("tensor-layout", fmt::format("there is no head {}", head));
  auto stop = x.shape();
  stop[1] = head + 1;
  return mx::squeeze(mx::slice(x, mx::Shape{0, head, 0, 0}, std::move(stop)), 1);
}

Result<mx::array> add_eager(const kit::OpRequest& request) { return mx::add(input(request, 0), input(request, 1)); }

Result<mx::array> slice_eager(const kit::OpRequest& request) {
  const auto& x = input(request, 0);
  mx::Shape begin(x.ndim(), 0), end = x.shape();
  begin.back() = static_cast<int>(request.node->begin);
  end.back() = static_cast<int>(request.node->begin + request.node->channels);
  return mx::slice(x, begin, end);
}

Result<mx::array> multiply_eager(const kit::OpRequest& request) { return mx::multiply(input(request, 0), input(request, 1)); }

Result<mx::array> sigmoid_eager(const kit::OpRequest& request) { return mx::sigmoid(input(request, 0)); }

Result<mx::array> silu_composed(const kit::OpRequest& request) {
  const auto& x = input(request, 0);
  return mx::multiply(x, mx::sigmoid(x));
}

constexpr OpVariant kVariants[] = {
    {Op::embedding, "take", "f32", embedding_take},
    {Op::scale, "eager", "f32", scale_eager},
    {Op::rms_norm, "fused", "f32", rms_norm_fused},
    {Op::rms_norm, "composed", "f32", rms_norm_composed},
    {Op::linear, "dense", "f32", linear_dense},
    {Op::linear, "reversed", "f32", linear_reversed},
    {Op::linear, "quantized", "dtype", linear_quantized},
    {Op::rope, "fused", "f32", rope_fused},
    {Op::rope, "composed", "f32", rope_composed},
    {Op::sdpa, "fused", "f32", sdpa_fused},
    {Op::sdpa, "composed", "f32", sdpa_composed},
    {Op::swiglu, "composed", "dtype", swiglu_composed},  // MLX's sigmoid rounds exp, 1 + exp, 1 / and 1 - each
    {Op::geglu, "composed", "dtype", geglu_composed},    // each of the steps is an op
    {Op::add, "eager", "f32", add_eager},
    {Op::softcap, "eager", "f32", softcap_eager},
    {Op::slice, "eager", "f32", slice_eager},
    {Op::multiply, "eager", "f32", multiply_eager},
    {Op::sigmoid, "eager", "dtype", sigmoid_eager},
    {Op::silu, "composed", "dtype", silu_composed},
    {Op::route, "eager", "dtype", route_eager},
    {Op::expert_linear, "gathered", "f32", expert_linear_gathered},
    {Op::expert_linear, "quantized", "dtype", expert_linear_quantized},
    {Op::expert_sum, "composed", "dtype", expert_sum_composed},
    {Op::causal_conv, "eager", "f32", causal_conv_eager},
    {Op::l2_norm, "fused", "f32", l2_norm_fused},
    {Op::delta_decay, "composed", "dtype", delta_decay_composed},
    {Op::delta_state, "composed", "f32", delta_state_composed},
    {Op::delta_out, "composed", "f32", delta_out_composed},
    {Op::select_head, "view", "f32", select_head_view},
};

}  // namespace

std::span<const OpVariant> op_variants() { return kVariants; }

const OpVariant* find_variant(Op op, std::string_view name) {
  for (const auto& variant : kVariants)
    if (variant.op == op && name == variant.name) return &variant;
  return nullptr;
}

}  // namespace culprit::mlx_engine
