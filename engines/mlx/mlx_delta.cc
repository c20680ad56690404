#include "mlx_delta.h"

#include <cmath>

#include "decode/delta_ops.h"

namespace culprit::mlx_engine {
namespace {

const mx::array& input(const kit::OpRequest& request, std::size_t index) { return unwrap(request.inputs[index]); }

mx::array token_of(const mx::array& x, int axis, int token) { return mx::take(x, token, axis); }

// Query or key heads [row, key head, token, channel] for each of `heads` value heads.
mx::array shared(const mx::array& x, int heads) { return heads == x.shape(1) ? x : mx::repeat(x, heads / x.shape(1), 1); }

}  // namespace

Result<mx::array> causal_conv_eager(const kit::OpRequest& request) {
  if (request.weight == nullptr || request.weight->dense == nullptr) return fail("not-supported", "the op has no dense weight");
  const auto& window = input(request, 0);
  const auto& weight = unwrap(request.weight->dense);
  auto x = mx::squeeze(window, 1);
  if (request.mask != nullptr) x = mx::where(mx::expand_dims(unwrap(request.mask), -1), x, mx::array(0.0F, x.dtype()));
  return mx::expand_dims(mx::conv1d(x, mx::expand_dims(weight, -1), 1, 0, 1, weight.shape(0)), 1);
}

Result<mx::array> l2_norm_fused(const kit::OpRequest& request) {
  const auto& x = input(request, 0);
  const double channels = x.shape(-1);
  const auto normed = mx::fast::rms_norm(x, std::nullopt, static_cast<float>(kL2NormEpsilon / channels));
  return mx::multiply(mx::array(static_cast<float>(request.node->factor / std::sqrt(channels)), x.dtype()), normed);
}

Result<mx::array> delta_decay_composed(const kit::OpRequest& request) {
  if (request.weight == nullptr || request.weight->dense == nullptr || request.bias == nullptr)
    return fail("not-supported", "the op needs a dense weight and a bias");
  const auto& x = input(request, 0);
  const auto soft = mx::logaddexp(mx::add(x, unwrap(request.bias)), mx::array(0.0F, x.dtype()));
  const auto rate = mx::exp(mx::astype(unwrap(request.weight->dense), mx::float32));
  return mx::exp(mx::multiply(mx::negative(rate), soft));
}

Result<mx::array> delta_state_composed(const kit::OpRequest& request) {
  const auto& v = input(request, 1);
  const int rows = v.shape(0), heads = v.shape(1), tokens = v.shape(2), values = v.shape(3), keys = input(request, 0).shape(3);
  const auto k = shared(input(request, 0), heads);
  auto state = request.inputs.size() > 4 ? mx::reshape(input(request, 4), mx::Shape{rows, heads, values, keys})
                                         : mx::zeros(mx::Shape{rows, heads, values, keys}, mx::float32);
  std::vector<mx::array> states;
  for (int token = 0; token < tokens; ++token) {
    const auto key = mx::expand_dims(token_of(k, 2, token), -2);                          // [row, head, 1, key channel]
    const auto decay = mx::expand_dims(token_of(input(request, 2), 1, token), {-2, -1});  // [row, head, 1, 1]
    const auto rate = mx::expand_dims(token_of(input(request, 3), 1, token), -1);         // [row, head, 1]
    const auto decayed = mx::multiply(state, decay);
    const auto held = mx::sum(mx::multiply(decayed, key), -1, false);  // [row, head, value channel]
    const auto change = mx::multiply(mx::subtract(token_of(v, 2, token), held), rate);
    auto next = mx::add(decayed, mx::multiply(key, mx::expand_dims(change, -1)));
    if (request.mask != nullptr) next = mx::where(mx::expand_dims(token_of(unwrap(request.mask), 1, token), {1, 2, 3}), next, state);
    state = next;
    states.push_back(mx::reshape(state, mx::Shape{rows, heads, values * keys}));
  }
  return mx::stack(states, 2);
}

Result<mx::array> delta_out_composed(const kit::OpRequest& request) {
  const auto& q = input(request, 0);
  const auto& state = input(request, 1);
  const int rows = state.shape(0), heads = state.shape(1), tokens = state.shape(2), keys = q.shape(3);
  const auto cells = mx::reshape(mx::astype(state, mx::float32), mx::Shape{rows, heads, tokens, state.shape(3) / keys, keys});
  return mx::astype(mx::sum(mx::multiply(cells, mx::expand_dims(shared(q, heads), -2)), -1, false), q.dtype());
}

}  // namespace culprit::mlx_engine
