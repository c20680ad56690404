#include "mlx_experts.h"

namespace culprit::mlx_engine {
namespace {

const mx::array& input(const kit::OpRequest& request, std::size_t index) { return unwrap(request.inputs[index]); }

mx::array first_of_last_axis(const mx::array& x, int begin, int end) {
  mx::Shape from(x.ndim(), 0), to = x.shape();
  from.back() = begin;
  to.back() = end;
  return mx::slice(x, from, to);
}

// Numbers of each token's experts, [row, token, choice]: as chosen_experts has them. Each expert's key is its number, plus the number of
// experts when its weight is 0, so that sorting puts those that count first.
mx::array choices(const mx::array& weights, int used) {
  const int experts = weights.shape(-1);
  const auto numbers = mx::arange(0, experts, 1);
  const auto late = mx::where(mx::greater(weights, mx::array(0.0F, weights.dtype())), mx::array(0), mx::array(experts));
  const auto first = first_of_last_axis(mx::sort(mx::add(numbers, late), -1), 0, used);
  return mx::astype(mx::sort(mx::remainder(first, mx::array(experts)), -1), mx::uint32);
}

// x [row, token, in] or [row, choice, token, in] -> [row, token, 1 or choice, 1, in].
mx::array by_token(const mx::array& x) { return x.ndim() == 3 ? mx::expand_dims(x, {2, 3}) : mx::expand_dims(mx::swapaxes(x, 1, 2), 3); }

// [row, token, choice, 1, out] -> [row, choice, token, out].
mx::array by_choice(const mx::array& y) { return mx::swapaxes(mx::squeeze(y, 3), 1, 2); }

}  // namespace

Result<mx::array> route_eager(const kit::OpRequest& request) {
  const auto& scores = input(request, 0);
  const int experts = scores.shape(-1), used = request.node->experts;
  const auto shares = mx::softmax(scores, -1, true);
  const auto kept = first_of_last_axis(mx::argpartition(shares, -used, -1), experts - used, experts);
  auto weights = mx::take_along_axis(shares, kept, -1);
  if (request.node->normalised) weights = mx::divide(weights, mx::sum(weights, -1, true));
  return mx::put_along_axis(mx::zeros_like(shares), kept, weights, -1);
}

Result<mx::array> expert_linear_gathered(const kit::OpRequest& request) {
  if (request.weight == nullptr || request.weight->dense == nullptr) return fail("not-supported", "the op has no dense weight");
  const auto chosen = choices(input(request, 1), request.node->experts);
  const auto transposed = mx::swapaxes(unwrap(request.weight->dense), -1, -2);
  const auto x = by_token(input(request, 0));
  if (mx::default_device() != mx::Device::cpu || x.dtype() == mx::float32)
    return by_choice(mx::gather_mm(x, transposed, std::nullopt, chosen));
  const auto wide = mx::gather_mm(mx::astype(x, mx::float32), mx::astype(transposed, mx::float32), std::nullopt, chosen);
  return by_choice(mx::astype(wide, x.dtype()));
}

Result<mx::array> expert_linear_quantized(const kit::OpRequest& request) {
  const auto* weight = request.weight;
  if (weight == nullptr || weight->packed == nullptr)
    return fail("not-supported", "the weight is not quantised: use expert_linear=gathered");
  const auto& x = input(request, 0);
  const auto chosen = choices(input(request, 1), request.node->experts);
  return by_choice(mx::gather_qmm(by_token(x), unwrap(weight->packed), mx::astype(unwrap(weight->scales), x.dtype()),
                                  mx::astype(unwrap(weight->biases), x.dtype()), std::nullopt, chosen, true, weight->group, weight->bits));
}

Result<mx::array> expert_sum_composed(const kit::OpRequest& request) {
  const auto& y = input(request, 0);
  const auto& weights = input(request, 1);
  const auto of_choice = mx::take_along_axis(weights, choices(weights, request.node->experts), -1);  // [row, token, choice]
  return mx::sum(mx::multiply(mx::swapaxes(y, 1, 2), mx::expand_dims(of_choice, -1)), -2, false);
}

}  // namespace culprit::mlx_engine
