#include <algorithm>
#include <cmath>
#include <limits>

#include "audit/ops/op_bounds.h"

namespace culprit {
namespace {

struct Key {
  std::int64_t slot = 0;
  double score = 0;
  double error = 0;   // bound on the score's error, with what the exponential adds
  double weight = 0;  // softmax, exact
  double moved = 0;   // how far the weight may be from that
};

bool is_power_of_two(double x) {
  int exponent = 0;
  return std::frexp(x, &exponent) == 0.5;
}

}  // namespace

// Scores s_j = scale q.k_j over d channels; weights p_j = exp(s_j) / sum exp; y = sum p_j v_j over n visible keys.
//
// A score's error ds_j. The dot product and the scaling: gamma_(d+1) sum |q k| scale. Rounded to the dtype when it is stored: u |s_j| +
// eta. Engines scale q first, in the dtype; that is exact for a power of two, else it adds a rounding of each channel and one of the scale
// itself: u sum |q k| scale + u |s_j|. A subnormal scaled q errs by eta in each channel: eta sum |k|.
// The softmax subtracts the maximum and takes exp: each errs by |x_j| v at x_j = s_j - max (see swiglu), so e_j = ds_j + 2 |x_j| v.
//
// With errors |d_j| <= e_j a weight becomes p_j exp(d_j) / sum p_k exp(d_k). Above: the sum is at least exp(-D) with D = sum p_k e_k
// (Jensen), so the relative error is at most expm1(e_j + D). Below: the sum is at most exp(D') with D' = log sum p_k exp(e_k), so it is at
// least expm1(-(e_j + D')). Both hold for errors of any size. This is per key: with the largest error for all keys the bound is about ten
// times wider. The denominator's sum (gamma_n), the exponential and the division (8 v) and the rounding of p_j to the dtype (u) come on
// top; a subnormal p_j errs by eta. The weighted sum of v adds gamma_n, and its result is rounded.
std::vector<double> sdpa_bounds(const BoundCall& call) {
  const auto& units = call.units;
  const auto& q = call.inputs[0];
  const auto& k = call.inputs[1];
  const auto& v = call.inputs[2];
  const auto& at = call.context.at;
  const std::int64_t rows = q.shape[0], heads = q.shape[1], tokens = q.shape[2], channels = q.shape[3];
  const std::int64_t kv_heads = k.shape[1], slots = k.shape[2];
  const double scale = attention_scale(*call.context.facts);
  const bool exact_scale = is_power_of_two(scale);
  const double dot = units.sum(channels + 1);
  const double threshold = overflow_threshold(call.dtype);
  const double infinity = std::numeric_limits<double>::infinity();

  const auto visible = visible_slots(at, call.node.window);
  std::vector<double> bounds(call.value.values.size());
  std::vector<Key> keys;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t token = 0; token < tokens; ++token) {
        const auto out = static_cast<std::size_t>(((row * heads + head) * tokens + token) * channels);
        const double* query = &q.values[out];
        const auto kv_base = (row * kv_heads + head / (heads / kv_heads)) * slots;
        const auto* sees = &visible[static_cast<std::size_t>((row * tokens + token) * slots)];
        keys.clear();
        double largest = -infinity;
        bool overflows = false;
        for (std::int64_t slot = 0; slot < slots; ++slot) {
          if (sees[slot] == 0) continue;
          const double* key = &k.values[static_cast<std::size_t>((kv_base + slot) * channels)];
          double score = 0, magnitude = 0, key_magnitude = 0;
          for (std::int64_t c = 0; c < channels; ++c) {
            const double product = query[c] * key[c];
            score += product;
            magnitude += std::abs(product);
            key_magnitude += std::abs(key[c]);
          }
          score *= scale;
          magnitude *= scale;
          double error = dot * magnitude + units.unit * std::abs(score) + units.eta * (1 + key_magnitude);
          if (!exact_scale) error += units.unit * (magnitude + std::abs(score));
          overflows = overflows || !(std::abs(score) + error < threshold);
          largest = std::max(largest, score);
          keys.push_back({slot, score, error, 0});
        }
        double total = 0;
        for (auto& key : keys) total += key.weight = std::exp(key.score - largest);
        double mean = 0, raised = 0;  // D and exp(D')
        for (auto& key : keys) {
          key.weight /= total;
          key.error += 2 * (largest - key.score) * units.step;
          mean += key.weight * key.error;
          raised += key.weight * std::exp(key.error);
        }
        const double above = mean, below = std::log(raised);
        const double sum = units.sum(static_cast<std::int64_t>(keys.size()));
        const double common = compounded(1, units.unit, sum + 8 * units.step);
        const double later = (1 + common) * (1 + sum) - 1;
        for (auto& key : keys) {
          const double moved = key.weight * std::max(std::expm1(key.error + above), -std::expm1(-(key.error + below)));
          key.moved = moved < 1 ? moved : 1;  // a weight stays in [0, 1], however wrong the scores are
        }
        for (std::int64_t c = 0; c < channels; ++c) {
          double inner = 0;
          for (const auto& key : keys) {
            const double value = std::abs(v.values[static_cast<std::size_t>((kv_base + key.slot) * channels + c)]);
            inner += value * (key.moved + (key.weight + key.moved) * later + units.eta);
          }
          const auto place = out + static_cast<std::size_t>(c);
          bounds[place] = overflows ? infinity : rounded_once(units, call.value.values[place], inner);
        }
      }
  return bounds;
}

}  // namespace culprit
