#include <algorithm>
#include <cmath>

#include "audit/ops/op_bounds.h"
#include "decode/delta_ops.h"

namespace culprit {

// A sum of `kernel` products for each channel, rounded once.
std::vector<double> causal_conv_bounds(const BoundCall& call) {
  const auto& units = call.units;
  NodeContext magnitudes = call.context;
  const auto absolute = [](const Tensor& tensor) {
    auto values = tensor.values();
    for (double& value : values) value = std::abs(value);
    return Tensor::from_values(DType::f64, tensor.shape(), values);
  };
  magnitudes.weight = absolute(call.context.weight);
  if (call.context.cache.rank() > 0) magnitudes.cache = absolute(call.context.cache);
  Array x = call.inputs[0];
  for (double& value : x.values) value = std::abs(value);
  const auto sums = evaluate_node(call.node, {x}, magnitudes);
  const auto kernel = call.context.weight.dim(1);
  const double inside = units.sum(kernel);
  std::vector<double> bounds(call.value.values.size());
  for (std::size_t i = 0; i < bounds.size(); ++i)
    bounds[i] = rounded_once(units, call.value.values[i], inside * sums->values[i] + static_cast<double>(kernel) * units.step_eta);
  return bounds;
}

// As rms_norm.cc: the sum of squares has one sign, its error is halved by the root, 8 steps for the rest; then the roundings to the dtype of
// x r and of its product with a factor, which an engine may hold in either of two forms. A subnormal x r errs by eta, which the factor scales.
std::vector<double> l2_norm_bounds(const BoundCall& call) {
  const auto& units = call.units;
  const double relative = compounded(2, units.unit, units.sum(call.value.shape.back()) / 2 + 8 * units.step + constant_error(call));
  const double small = units.eta * (std::abs(call.node.factor) + 1);
  std::vector<double> bounds(call.value.values.size());
  for (std::size_t i = 0; i < bounds.size(); ++i) bounds[i] = relative * std::abs(call.value.values[i]) + small;
  return bounds;
}

// g = exp(-w) with w = exp(A) s, s = softplus(t), t = x + bias. t errs by one rounding, tau |t|; softplus grows no faster than t, and errs by
// kappa s of its own: 8 steps, and where each step is declared to be rounded to the dtype three more, of z = exp(-|t|), of log1p(z), which grows
// no faster than z, and of its sum with max(t, 0). exp(A) errs by (8 + |A|) v (see swiglu.cc), the product by one more. So w errs by
// exp(A) (tau |t| + kappa s) + w (9 + |A|) v, which moves g by the factor exp of that,
// up to 1; g's own exponential errs by (8 + w) v, and its result is rounded, to f32 at least. call.units are those of the run's dtype.
std::vector<double> delta_decay_bounds(const BoundCall& call) {
  const auto& units = call.units;
  const auto result = units_of(call.dtype, {});
  const double v = result.step;  // exponentials are taken in f32 at least
  const double tau = units.in_dtype ? units.step : v, kappa = compounded(units.in_dtype ? 3 : 0, units.unit, 8 * v);
  const auto rate = call.context.weight.values(), bias = call.context.bias.values();
  std::vector<double> bounds(call.value.values.size());
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    const auto head = i % rate.size();
    const double t = call.inputs[0].values[i] + bias[head], scale = std::exp(rate[head]);
    const double s = std::max(t, 0.0) + std::log1p(std::exp(-std::abs(t))), w = scale * s;
    if (std::isinf(t)) {  // every step is exact
      bounds[i] = result.eta;
      continue;
    }
    const double moved = scale * (tau * std::abs(t) + kappa * s) + w * (9 + std::abs(rate[head])) * v + (8 + w) * v;
    const double value = call.value.values[i];
    const double above = std::min(1.0, std::exp(moved - w)) - value, below = value - std::exp(-w - moved);
    bounds[i] = rounded_once(result, value, std::max(above, below));
  }
  return bounds;
}

// S' = g S, m = S' k over n key channels, d = (v - m) b, and S' + d k. With steps of v: S' errs by v |S'|; m by gamma_(n+1) sum |S' k| = e; d by
// (|b| e (1 + v) + 2 v |d|) (1 + v), that is the difference, the product, and what they carry; the product d k by that times |k| and one
// step, the last sum by one rounding. Each token's state is judged from the one that was recorded before it.
std::vector<double> delta_state_bounds(const BoundCall& call) {
  const auto& units = call.units;
  const auto &k = call.inputs[0], &v = call.inputs[1], &decay = call.inputs[2], &rate = call.inputs[3];
  const auto heads = static_cast<std::size_t>(v.shape[1]), tokens = static_cast<std::size_t>(v.shape[2]);
  const auto values = static_cast<std::size_t>(v.shape[3]), keys = static_cast<std::size_t>(k.shape[3]);
  const auto shared = heads / static_cast<std::size_t>(k.shape[1]), cells = values * keys;
  const auto before = call.context.cache.rank() > 0 ? call.context.cache.values() : std::vector<double>();
  const auto given = before.empty() ? std::size_t{0} : static_cast<std::size_t>(call.context.cache.dim(2));
  const auto padding = padding_tokens(call.context.at);
  const double step = units.step, sum = gamma(static_cast<std::int64_t>(keys) + 1, step);
  std::vector<double> bounds(call.value.values.size(), 0.0);
  std::vector<double> state(cells);
  for (std::size_t vector = 0; vector < bounds.size() / cells; ++vector) {
    const auto token = vector % tokens, head = vector / tokens % heads, row = vector / tokens / heads;
    if (padding[row * tokens + token] != 0) continue;  // the state is left alone
    std::ranges::fill(state, 0.0);
    if (token < given)
      std::copy_n(&before[((row * heads + head) * given + token) * cells], cells, state.begin());
    else if (token > 0)
      std::copy_n(&call.value.values[(vector - 1) * cells], cells, state.begin());
    const double* key = &k.values[((row * static_cast<std::size_t>(k.shape[1]) + head / shared) * tokens + token) * keys];
    const auto gate = (row * tokens + token) * heads + head;
    for (std::size_t c = 0; c < values; ++c) {
      double held = 0, magnitude = 0;
      for (std::size_t j = 0; j < keys; ++j) {
        const double kept = state[c * keys + j] * decay.values[gate];
        held += kept * key[j];
        magnitude += std::abs(kept * key[j]);
      }
      const double difference = v.values[vector * values + c] - held, change = difference * rate.values[gate];
      const double error = (std::abs(rate.values[gate]) * sum * magnitude * (1 + step) + 2 * step * std::abs(change)) * (1 + step);
      for (std::size_t j = 0; j < keys; ++j) {
        const auto place = vector * cells + c * keys + j;
        const double kept = std::abs(state[c * keys + j] * decay.values[gate]);
        const double added = std::abs(key[j]) * (error + step * (std::abs(change) + error));
        bounds[place] = rounded_once(units, call.value.values[place], step * kept + added + 3 * units.step_eta);
      }
    }
  }
  return bounds;
}

// A sum over the key channels, rounded once.
std::vector<double> delta_out_bounds(const BoundCall& call) {
  const auto& units = call.units;
  Array q = call.inputs[0], state = call.inputs[1];
  for (double& value : q.values) value = std::abs(value);
  for (double& value : state.values) value = std::abs(value);
  const auto sums = delta_out(q, state);
  const double inside = units.sum(q.shape[3]), underflow = static_cast<double>(q.shape[3]) * units.step_eta;
  std::vector<double> bounds(call.value.values.size());
  for (std::size_t i = 0; i < bounds.size(); ++i)
    bounds[i] = rounded_once(units, call.value.values[i], inside * sums.values[i] + underflow);
  return bounds;
}

}  // namespace culprit
