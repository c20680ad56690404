#include "decode/delta_ops.h"

#include <algorithm>
#include <cmath>

#include "base/pool.h"
#include "num/dtype.h"

namespace culprit {

Array causal_conv(const Array& window, std::span<const double> weight) {
  const auto rows = static_cast<std::size_t>(window.shape[0]), slots = static_cast<std::size_t>(window.shape[2]);
  const auto channels = static_cast<std::size_t>(window.shape[3]), kernel = weight.size() / channels, tokens = slots + 1 - kernel;
  Array result{{window.shape[0], 1, static_cast<std::int64_t>(tokens), window.shape[3]},
               std::vector<double>(rows * tokens * channels, 0.0)};
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t token = 0; token < tokens; ++token)
      for (std::size_t i = 0; i < kernel; ++i) {
        const double* in = &window.values[(row * slots + token + i) * channels];
        double* out = &result.values[(row * tokens + token) * channels];
        for (std::size_t c = 0; c < channels; ++c) out[c] += in[c] * weight[c * kernel + i];
      }
  return result;
}

Array l2_norm(const Array& x, double factor) {
  const auto channels = static_cast<std::size_t>(x.shape.back());
  Array result = x;
  for (std::size_t start = 0; start < x.values.size(); start += channels) {
    double squares = 0;
    for (std::size_t c = 0; c < channels; ++c) squares += x.values[start + c] * x.values[start + c];
    const double scale = factor / std::sqrt(squares + kL2NormEpsilon);
    for (std::size_t c = 0; c < channels; ++c) result.values[start + c] *= scale;
  }
  return result;
}

Array delta_decay(const Array& x, std::span<const double> log_rate, std::span<const double> bias) {
  Array result = x;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const auto head = i % log_rate.size();
    const double t = x.values[i] + bias[head];
    result.values[i] = std::exp(-std::exp(log_rate[head]) * (std::max(t, 0.0) + std::log1p(std::exp(-std::abs(t)))));
  }
  return result;
}

Array delta_state(const Array& k, const Array& v, const Array& decay, const Array& rate, const Array& before,
                  const std::vector<std::uint8_t>& is_padding, DType dtype) {
  const auto rows = static_cast<std::size_t>(v.shape[0]), heads = static_cast<std::size_t>(v.shape[1]);
  const auto tokens = static_cast<std::size_t>(v.shape[2]), values = static_cast<std::size_t>(v.shape[3]);
  const auto keys = static_cast<std::size_t>(k.shape[3]), key_heads = static_cast<std::size_t>(k.shape[1]), cells = values * keys;
  const auto given = before.values.empty() ? 0 : static_cast<std::size_t>(before.shape[2]);
  Array result{{v.shape[0], v.shape[1], v.shape[2], static_cast<std::int64_t>(cells)}, {}};
  result.values.resize(rows * heads * tokens * cells);
  parallel_for(rows * heads, 1, [&](std::size_t begin, std::size_t end) {
    std::vector<double> state(cells);
    for (auto i = begin; i < end; ++i) {
      std::ranges::fill(state, 0.0);
      const auto row = i / heads, head = i % heads;
      for (std::size_t token = 0; token < tokens; ++token) {
        if (token < given) std::copy_n(&before.values[(i * given + token) * cells], cells, state.begin());
        const double* key = &k.values[((row * key_heads + head / (heads / key_heads)) * tokens + token) * keys];
        const double* value = &v.values[(i * tokens + token) * values];
        const auto gate = (row * tokens + token) * heads + head;
        for (std::size_t c = 0; c < values && is_padding[row * tokens + token] == 0; ++c) {
          double* cell = &state[c * keys];
          double held = 0;
          for (std::size_t j = 0; j < keys; ++j) held += (cell[j] *= decay.values[gate]) * key[j];
          const double change = (value[c] - held) * rate.values[gate];
          for (std::size_t j = 0; j < keys; ++j) cell[j] = round_to(dtype, cell[j] + change * key[j]);
        }
        std::copy_n(state.begin(), cells, &result.values[(i * tokens + token) * cells]);
      }
    }
  });
  return result;
}

Array delta_out(const Array& q, const Array& state) {
  const auto heads = static_cast<std::size_t>(state.shape[1]), tokens = static_cast<std::size_t>(state.shape[2]);
  const auto keys = static_cast<std::size_t>(q.shape[3]), key_heads = static_cast<std::size_t>(q.shape[1]);
  Array result{{state.shape[0], state.shape[1], state.shape[2], state.shape[3] / q.shape[3]}, {}};
  result.values.resize(state.values.size() / keys);
  const auto values = static_cast<std::size_t>(result.shape[3]);
  for (std::size_t i = 0; i < result.values.size(); ++i) {
    const auto vector = i / values, token = vector % tokens, head = vector / tokens % heads, row = vector / tokens / heads;
    const double* query = &q.values[((row * key_heads + head / (heads / key_heads)) * tokens + token) * keys];
    for (std::size_t j = 0; j < keys; ++j) result.values[i] += state.values[i * keys + j] * query[j];
  }
  return result;
}

}  // namespace culprit
