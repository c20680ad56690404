#include "decode/ops.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/pool.h"

namespace culprit {
namespace {
constexpr std::size_t kElementsPerTask = 1 << 14;

/// Blocks of rows so that each task has about kElementsPerTask elements.
std::size_t grain_for(std::int64_t row_elements) {
  return std::max<std::size_t>(1, kElementsPerTask / static_cast<std::size_t>(std::max<std::int64_t>(1, row_elements)));
}

template <class Map>
Array elementwise(const Array& x, Map&& map) {
  Array result{x.shape, std::vector<double>(x.values.size())};
  parallel_for(x.values.size(), kElementsPerTask, [&](std::size_t begin, std::size_t end) {
    for (auto i = begin; i < end; ++i) result.values[i] = map(x.values[i]);
  });
  return result;
}

template <class Combine>
Array elementwise(const Array& x, const Array& y, Combine&& combine) {
  assert(x.shape == y.shape);
  Array result{x.shape, std::vector<double>(x.values.size())};
  parallel_for(x.values.size(), kElementsPerTask, [&](std::size_t begin, std::size_t end) {
    for (auto i = begin; i < end; ++i) result.values[i] = combine(x.values[i], y.values[i]);
  });
  return result;
}

/// Swaps the middle axes of [a, b, c, channel].
std::vector<double> swap_middle(const std::vector<double>& values, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t channels) {
  std::vector<double> result(values.size());
  for (std::int64_t i = 0; i < a; ++i)
    for (std::int64_t j = 0; j < b; ++j)
      for (std::int64_t k = 0; k < c; ++k)
        std::copy_n(values.begin() + ((i * b + j) * c + k) * channels, channels, result.begin() + ((i * c + k) * b + j) * channels);
  return result;
}
}  // namespace

Array to_array(const Tensor& tensor) { return {tensor.shape(), tensor.values()}; }

Tensor to_tensor(const Array& array, DType dtype) { return Tensor::from_values(dtype, array.shape, array.values); }

Array embedding(const Tensor& table, const std::vector<std::vector<int>>& tokens) {
  assert(table.rank() == 2);
  const auto rows = static_cast<std::int64_t>(tokens.size());
  const auto count = rows == 0 ? 0 : static_cast<std::int64_t>(tokens[0].size());
  const auto channels = table.dim(1);
  const auto row_bytes = channels * static_cast<std::int64_t>(size_of(table.dtype()));
  const auto bytes = table.contiguous_bytes();
  Array result{{rows, count, channels}, std::vector<double>(static_cast<std::size_t>(rows * count * channels))};
  auto* out = result.values.data();
  for (const auto& row : tokens) {
    assert(static_cast<std::int64_t>(row.size()) == count);
    for (const int token : row) {
      assert(0 <= token && token < table.dim(0));
      load_many(table.dtype(), bytes.data() + token * row_bytes, static_cast<std::size_t>(channels), out);
      out += channels;
    }
  }
  return result;
}

Array scale(const Array& x, double factor) {
  return elementwise(x, [factor](double value) { return value * factor; });
}

Array rms_norm(const Array& x, std::span<const double> weight, double epsilon, bool unit_offset) {
  assert(!x.shape.empty() && x.shape.back() == static_cast<std::int64_t>(weight.size()));
  const auto channels = weight.size();
  const double offset = unit_offset ? 1 : 0;
  Array result{x.shape, std::vector<double>(x.values.size())};
  if (channels == 0) return result;
  parallel_for(x.values.size() / channels, grain_for(x.shape.back()), [&](std::size_t begin, std::size_t end) {
    for (auto row = begin; row < end; ++row) {
      const double* in = x.values.data() + row * channels;
      double* out = result.values.data() + row * channels;
      double squares = 0;
      for (std::size_t i = 0; i < channels; ++i) squares += in[i] * in[i];
      const double root = std::sqrt(squares / static_cast<double>(channels) + epsilon);
      for (std::size_t i = 0; i < channels; ++i) out[i] = in[i] / root * (weight[i] + offset);
    }
  });
  return result;
}

std::vector<double> rope_frequencies(const RopeFacts& facts) {
  std::vector<double> frequencies(static_cast<std::size_t>(facts.dims / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double plain = std::pow(facts.base, -2.0 * static_cast<double>(i) / facts.dims);
    double& frequency = frequencies[i];
    frequency = plain;
    if (facts.scaling == RopeScaling::linear) frequency = plain / facts.factor;
    // As in `_compute_proportional_rope_parameters` of transformers: exponents are fractions of all channels, and the last pairs stand still.
    if (facts.scaling == RopeScaling::proportional) frequency = 2 * static_cast<int>(i) < facts.rotated ? plain / facts.factor : 0;
    if (facts.scaling == RopeScaling::llama3) {
      // As in `apply_scaling` of Meta's llama-models (Llama 3.1): long waves are slowed by the factor, short ones kept, and between the two
      // limits the share of the kept one falls linearly with the number of waves in the original context.
      const double waves = facts.original_context * plain / (2 * std::numbers::pi);
      const double kept = (waves - facts.low_frequency_factor) / (facts.high_frequency_factor - facts.low_frequency_factor);
      frequency = std::clamp(kept, 0.0, 1.0) * plain + (1 - std::clamp(kept, 0.0, 1.0)) * plain / facts.factor;
    }
  }
  return frequencies;
}

Array rope(const Array& x, const RopeFacts& facts, const std::vector<std::vector<std::int64_t>>& position) {
  assert(x.shape.size() == 4);
  const auto heads = static_cast<std::size_t>(x.shape[1]);
  const auto tokens = static_cast<std::size_t>(x.shape[2]);
  const auto channels = static_cast<std::size_t>(x.shape[3]);
  const auto frequencies = rope_frequencies(facts);
  const auto half = frequencies.size();
  assert(position.size() == static_cast<std::size_t>(x.shape[0]) && 2 * half <= channels);
  // Pair i is channels (i, i + half) or (2i, 2i + 1).
  const bool interleaved = facts.pairing == RopePairing::interleaved;
  const std::size_t pair_step = interleaved ? 2 : 1;
  const std::size_t partner = interleaved ? 1 : half;
  Array result = x;
  parallel_for(position.size() * tokens, grain_for(static_cast<std::int64_t>(heads * channels)), [&](std::size_t begin, std::size_t end) {
    for (auto i = begin; i < end; ++i) {
      const auto row = i / tokens;
      const auto token = i % tokens;
      assert(position[row].size() == tokens);
      const auto at = static_cast<double>(position[row][token]);
      for (std::size_t pair = 0; pair < half; ++pair) {
        const double angle = at * frequencies[pair];
        const double cosine = std::cos(angle);
        const double sine = std::sin(angle);
        for (std::size_t head = 0; head < heads; ++head) {
          const auto first = ((row * heads + head) * tokens + token) * channels + pair * pair_step;
          const double p = x.values[first];
          const double q = x.values[first + partner];
          result.values[first] = p * cosine - q * sine;
          result.values[first + partner] = p * sine + q * cosine;
        }
      }
    }
  });
  return result;
}

std::vector<std::uint8_t> visible_slots(const Coordinates& at, int window) {
  std::vector<std::uint8_t> visible;
  for (std::size_t row = 0; row < at.position.size(); ++row) {
    const auto tokens = at.position[row].size(), slots = at.slot[row].size();
    for (std::size_t token = 0; token < tokens; ++token) {
      bool sees_any = false;
      for (const auto slot : at.slot[row]) {
        const bool sees = is_visible(slot, at.position[row][token], window);
        sees_any = sees_any || sees;
        visible.push_back(sees ? 1 : 0);
      }
      const auto own = slots - tokens + token;
      if (!sees_any && slots >= tokens && at.slot[row][own] < 0) visible[visible.size() - slots + own] = 1;
    }
  }
  return visible;
}

Array sdpa(const Array& q, const Array& k, const Array& v, double scale, const Coordinates& at, int window) {
  assert(static_cast<std::int64_t>(at.position.size()) == q.shape[0] && at.slot.size() == at.position.size());
  return sdpa(q, k, v, scale, visible_slots(at, window));
}

Array sdpa(const Array& q, const Array& k, const Array& v, double scale, std::span<const std::uint8_t> visible) {
  assert(q.shape.size() == 4 && k.shape.size() == 4 && v.shape.size() == 4);
  const auto rows = static_cast<std::size_t>(q.shape[0]);
  const auto heads = static_cast<std::size_t>(q.shape[1]);
  const auto tokens = static_cast<std::size_t>(q.shape[2]);
  const auto channels = static_cast<std::size_t>(q.shape[3]);
  const auto kv_heads = static_cast<std::size_t>(k.shape[1]);
  const auto slots = static_cast<std::size_t>(k.shape[2]);
  const auto value_channels = static_cast<std::size_t>(v.shape[3]);
  assert(k.shape[3] == q.shape[3] && v.shape[1] == k.shape[1] && v.shape[2] == k.shape[2] && kv_heads > 0 && heads % kv_heads == 0);
  assert(visible.size() == rows * tokens * slots);
  Array result{{q.shape[0], q.shape[1], q.shape[2], v.shape[3]}, std::vector<double>(rows * heads * tokens * value_channels)};
  const auto work = static_cast<std::int64_t>(slots * (channels + value_channels));
  parallel_for(rows * heads * tokens, grain_for(work), [&](std::size_t begin, std::size_t end) {
    std::vector<std::size_t> seen;
    std::vector<double> scores;
    for (auto i = begin; i < end; ++i) {
      const auto token = i % tokens;
      const auto head = i / tokens % heads;
      const auto row = i / (tokens * heads);
      const auto kv_head = row * kv_heads + head / (heads / kv_heads);
      const auto* sees = visible.data() + (row * tokens + token) * slots;
      const double* query = q.values.data() + i * channels;
      double* out = result.values.data() + i * value_channels;
      seen.clear();
      scores.clear();
      double largest = -std::numeric_limits<double>::infinity();
      for (std::size_t slot = 0; slot < slots; ++slot) {
        if (sees[slot] == 0) continue;
        const double* key = k.values.data() + (kv_head * slots + slot) * channels;
        double score = 0;
        for (std::size_t c = 0; c < channels; ++c) score += query[c] * key[c];
        score *= scale;
        largest = std::max(largest, score);
        seen.push_back(slot);
        scores.push_back(score);
      }
      double total = 0;
      for (double& score : scores) total += score = std::exp(score - largest);
      for (std::size_t j = 0; j < seen.size(); ++j) {
        const double* value = v.values.data() + (kv_head * slots + seen[j]) * value_channels;
        for (std::size_t c = 0; c < value_channels; ++c) out[c] += scores[j] * value[c];
      }
      for (std::size_t c = 0; c < value_channels; ++c) out[c] /= total;  // 0 / 0 when nothing was seen
    }
  });
  return result;
}

Array swiglu(const Array& gate, const Array& up) {
  return elementwise(gate, up, [](double g, double u) { return g / (1 + std::exp(-g)) * u; });
}

Array geglu(const Array& gate, const Array& up) {
  // 1 + tanh(z) as 2 / (1 + exp(-2z)): the sum would cancel for negative z.
  return elementwise(gate, up, [](double g, double u) { return g / (1 + std::exp(-2 * kGeluScale * (g + kGeluCubic * g * g * g))) * u; });
}

Array add(const Array& x, const Array& y) {
  return elementwise(x, y, [](double p, double q) { return p + q; });
}

Array softcap(const Array& x, double cap) {
  return elementwise(x, [cap](double value) { return cap * std::tanh(value / cap); });
}

Array slice_channels(const Array& x, std::int64_t begin, std::int64_t channels) {
  assert(0 <= begin && channels > 0 && begin + channels <= x.shape.back());
  Array result{x.shape, {}};
  result.shape.back() = channels;
  result.values.reserve(static_cast<std::size_t>(x.count() / x.shape.back() * channels));
  for (std::int64_t start = begin; start < x.count(); start += x.shape.back())
    result.values.insert(result.values.end(), x.values.begin() + start, x.values.begin() + start + channels);
  return result;
}

Array multiply(const Array& x, const Array& y) {
  if (x.shape == y.shape) return elementwise(x, y, [](double p, double q) { return p * q; });
  assert(y.shape.back() == 1 && x.count() == y.count() * x.shape.back());
  Array result = x;
  const auto channels = static_cast<std::size_t>(x.shape.back());
  for (std::size_t i = 0; i < result.values.size(); ++i) result.values[i] *= y.values[i / channels];
  return result;
}

Array sigmoid(const Array& x) {
  return elementwise(x, [](double value) { return 1 / (1 + std::exp(-value)); });
}

Array silu(const Array& x) {
  return elementwise(x, [](double value) { return value / (1 + std::exp(-value)); });
}

std::vector<std::uint8_t> padding_tokens(const Coordinates& at) {
  std::vector<std::uint8_t> padding;
  for (std::size_t row = 0; row < at.position.size(); ++row)
    for (const auto position : at.position[row]) {
      const bool is_live = position >= 0 && std::ranges::find(at.slot[row], position) != at.slot[row].end();
      padding.push_back(is_live ? 0 : 1);
    }
  return padding;
}

Array select_head(const Array& x, int head) {
  assert(x.shape.size() == 4 && 0 <= head && head < x.shape[1]);
  const auto block = x.shape[2] * x.shape[3];  // of one head
  Array result{{x.shape[0], x.shape[2], x.shape[3]}, {}};
  result.values.reserve(static_cast<std::size_t>(x.shape[0] * block));
  for (std::int64_t row = 0; row < x.shape[0]; ++row) {
    const auto begin = x.values.begin() + (row * x.shape[1] + head) * block;
    result.values.insert(result.values.end(), begin, begin + block);
  }
  return result;
}

Array split_heads(const Array& x, int heads) {
  assert(x.shape.size() == 3 && heads > 0 && x.shape[2] % heads == 0);
  const auto channels = x.shape[2] / heads;
  return {{x.shape[0], heads, x.shape[1], channels}, swap_middle(x.values, x.shape[0], x.shape[1], heads, channels)};
}

Array merge_heads(const Array& x) {
  assert(x.shape.size() == 4);
  return {{x.shape[0], x.shape[2], x.shape[1] * x.shape[3]}, swap_middle(x.values, x.shape[0], x.shape[1], x.shape[2], x.shape[3])};
}

}  // namespace culprit
