#include <cmath>

#include "audit/ops/op_bounds.h"

namespace culprit {
namespace {

// Relative error of one inverse frequency, f = exp(-a) with a = ln(base) i / half: the exponent is known to 2 v relative (its logarithm and
// its quotient), which is 2 a v absolute and so relative in f; exp adds 2 v, the product with the position v, and v is spare. Scaling
// divides once more (linear, proportional), or interpolates (llama3): there f' = (1 - s) f / factor + s f with s = (context f / 2 pi - low) / (high -
// low), so an error of f moves s by at most high / (high - low) of it, and f' >= f / factor magnifies that by (factor - 1).
double angle_error(const RopeFacts& facts, int pair, double step) {
  const double exponent = std::log(facts.base) * pair / (facts.dims / 2);
  const double plain = 2 * exponent + 4;
  switch (facts.scaling) {
    case RopeScaling::none:
      return plain * step;
    case RopeScaling::linear:
    case RopeScaling::proportional:
      return (plain + 1) * step;
    case RopeScaling::llama3: {
      const double turns = facts.original_context * std::exp(-exponent) / (2 * 3.14159265358979323846);
      // The exponent's error decides which side of a border a frequency falls on, so the borders belong to the middle.
      const double slack = 1 + (plain + 4) * step;
      const bool between = turns * slack >= facts.low_frequency_factor && turns <= facts.high_frequency_factor * slack;
      if (!between) return (plain + 1) * step;
      const double moved = facts.high_frequency_factor / (facts.high_frequency_factor - facts.low_frequency_factor);
      return (plain + 6) * (1 + (facts.factor - 1) * moved) * step;
    }
  }
  return plain * step;
}

}  // namespace

// y = p cos t - q sin t (and q cos t + p sin t) with t = position * f. Positions are the plan's and exact: an engine that rounds a
// position misuses an index, which no bound excuses. The angle errs by |t| times the above; cos and sin add 1.3 v each on the engines
// measured, with 4 v allowed. cos and sin, the two products, and the sum are rounded to the dtype; each may be subnormal. Channels that are
// not rotated pass through unchanged, and so do pairs whose frequency is 0: p * 1 - q * 0 is p in any arithmetic.
std::vector<double> rope_bounds(const BoundCall& call) {
  const auto& units = call.units;
  const auto& facts = rope_of(call.node, *call.context.facts);
  const auto& x = call.inputs[0];
  const auto frequencies = rope_frequencies(facts);
  const std::int64_t rows = x.shape[0], heads = x.shape[1], tokens = x.shape[2], channels = x.shape[3];
  const int half = facts.dims / 2;
  const double product = compounded(2, units.unit, 0);
  // The angle is arithmetic on an index: it is done in f32 or wider whatever the dtype accumulates in.
  const double step = units.in_dtype ? units_of(call.dtype, {}).step : units.step;
  std::vector<double> errors;
  for (int pair = 0; pair < half; ++pair) errors.push_back(angle_error(facts, pair, step));

  std::vector<double> bounds(call.value.values.size(), 0.0);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t token = 0; token < tokens; ++token) {
      const auto position = static_cast<double>(call.context.at.position[static_cast<std::size_t>(row)][static_cast<std::size_t>(token)]);
      for (int pair = 0; pair < half; ++pair) {
        if (frequencies[static_cast<std::size_t>(pair)] == 0) continue;
        const double angle = position * frequencies[static_cast<std::size_t>(pair)];
        const double cosine = std::abs(std::cos(angle)), sine = std::abs(std::sin(angle));
        const double turned = std::abs(angle) * errors[static_cast<std::size_t>(pair)] + 4 * step;
        const bool halves = facts.pairing == RopePairing::half;
        for (std::int64_t head = 0; head < heads; ++head) {
          const auto start = static_cast<std::size_t>(((row * heads + head) * tokens + token) * channels);
          const std::size_t first = start + static_cast<std::size_t>(halves ? pair : 2 * pair);
          const std::size_t second = start + static_cast<std::size_t>(halves ? pair + half : 2 * pair + 1);
          const double p = std::abs(x.values[first]), q = std::abs(x.values[second]);
          const double moved = turned * (p + q) * (1 + product);
          const double subnormal = units.eta * (p + q + 2);
          bounds[first] = rounded_once(units, call.value.values[first], product * (p * cosine + q * sine) + moved + subnormal);
          bounds[second] = rounded_once(units, call.value.values[second], product * (q * cosine + p * sine) + moved + subnormal);
        }
      }
    }
  return bounds;
}

}  // namespace culprit
