#include <algorithm>
#include <cmath>

#include "audit/ops/op_bounds.h"
#include "decode/expert_ops.h"

namespace culprit {
namespace {

// Relative error of each share p_j = exp(x_j - m) / sum exp of n experts, with arithmetic in steps of v: the difference and its exponential
// err by 2 |x_j - m| v + 8 v (see sdpa.cc, swiglu.cc), the sum by the mean of these and gamma_n, the division by v. Softmax is computed in f32
// at least, and its result is rounded to the dtype once.
std::vector<double> share_errors(std::span<const double> scores, std::span<const double> shares, const Units& units, double step) {
  const double most = *std::ranges::max_element(scores);
  double mean = 0;
  std::vector<double> errors;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    errors.push_back((2 * (most - scores[i]) + 8) * step);
    if (shares[i] > 0) mean += shares[i] * errors.back();
  }
  const double sum = gamma(std::ssize(scores), step);
  for (double& error : errors) error = compounded(1, units.unit, std::expm1(error + mean + sum + step));
  return errors;
}

double softmax_step(const BoundCall& call) { return call.units.in_dtype ? units_of(call.dtype, {}).step : call.units.step; }

}  // namespace

// Which shares are the largest: with errors e_j, expert i may come before j where p_i (1 + e_i) >= p_j (1 - e_j). So those that are larger
// than the used-th largest beyond all doubt are chosen, those that are smaller beyond all doubt are not, and of the rest the engine's are.
Array route_as_chosen(const Array& scores, const Array& actual, int used, bool normalised, const Units& units) {
  const auto experts = static_cast<std::size_t>(scores.shape.back()), wanted = static_cast<std::size_t>(used);
  Array weights{scores.shape, std::vector<double>(scores.values.size(), 0.0)};
  for (std::size_t start = 0; start < scores.values.size(); start += experts) {
    const auto of_token = std::span(scores.values).subspan(start, experts);
    const auto shares = softmax(of_token);
    const auto errors = share_errors(of_token, shares, units, units.in_dtype ? 0x1p-24 + 0x1p-53 : units.step);
    // In order of what is sure, then of what the engine did, then of what is right.
    std::vector<std::size_t> order(experts);
    for (std::size_t i = 0; i < experts; ++i) order[i] = i;
    const auto may_beat = [&](std::size_t i, std::size_t j) { return shares[i] * (1 + errors[i]) >= shares[j] * (1 - errors[j]); };
    std::ranges::stable_sort(order, [&](std::size_t i, std::size_t j) { return shares[i] > shares[j]; });
    const auto last_in = order[wanted - 1];
    const auto first_out = wanted < experts ? order[wanted] : last_in;
    const auto rank = [&](std::size_t i) {
      const bool is_in = std::find(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(wanted), i) !=
                         order.begin() + static_cast<std::ptrdiff_t>(wanted);
      if (is_in && wanted < experts && !may_beat(first_out, i)) return 0;  // surely chosen
      if (!is_in && !may_beat(i, last_in)) return 3;                       // surely not
      return actual.values[start + i] != 0 ? 1 : 2;
    };
    std::vector<std::pair<int, std::size_t>> ranked;
    for (std::size_t place = 0; place < experts; ++place) ranked.emplace_back(rank(order[place]), order[place]);
    std::ranges::stable_sort(ranked, {}, &std::pair<int, std::size_t>::first);
    std::vector<std::size_t> kept;
    for (std::size_t i = 0; i < wanted; ++i) kept.push_back(ranked[i].second);
    keep_experts(shares, kept, normalised, std::span(weights.values).subspan(start, experts));
  }
  return weights;
}

// A share that is kept errs as above. Normalised, it is divided by the sum of those that are kept, each with its error: the mean of these,
// and gamma of their number in the arithmetic declared; the quotient is rounded. What is not kept is 0.
std::vector<double> route_bounds(const BoundCall& call) {
  const auto experts = static_cast<std::size_t>(call.value.shape.back());
  const auto& units = call.units;
  std::vector<double> bounds(call.value.values.size(), 0.0);
  for (std::size_t start = 0; start < bounds.size(); start += experts) {
    const auto scores = std::span(call.inputs[0].values).subspan(start, experts);
    const auto weights = std::span(call.value.values).subspan(start, experts);
    const auto shares = softmax(scores);
    const auto errors = share_errors(scores, shares, units, softmax_step(call));
    double mean = 0;
    for (std::size_t i = 0; i < experts; ++i)
      if (weights[i] > 0) mean += weights[i] * errors[i];
    const double sum = mean + gamma(call.node.experts, units.in_dtype ? units.unit : units.step);
    for (std::size_t i = 0; i < experts; ++i) {
      if (weights[i] == 0) continue;
      const double relative = call.node.normalised ? compounded(1, units.unit, (1 + errors[i]) / (1 - std::min(sum, 0.5)) - 1) : errors[i];
      bounds[i + start] = relative * weights[i] + 2 * units.eta;
    }
  }
  return bounds;
}

// A sum of `used` products: gamma_used sum |w x| inside and one rounding, or, where its steps are declared to be rounded to the dtype, the
// products and partial sums with a unit each.
std::vector<double> expert_sum_bounds(const BoundCall& call) {
  const auto& units = call.units;
  Array magnitudes = call.inputs[0], weights = call.inputs[1];
  for (double& value : magnitudes.values) value = std::abs(value);
  for (double& value : weights.values) value = std::abs(value);
  const auto sums = expert_sum(magnitudes, weights, call.node.experts);
  const double inside = gamma(call.node.experts + 1, units.in_dtype ? units.unit : units.step);
  std::vector<double> bounds(call.value.values.size());
  for (std::size_t i = 0; i < bounds.size(); ++i)
    bounds[i] = rounded_once(units, call.value.values[i], inside * sums.values[i] + call.node.experts * units.step_eta);
  return bounds;
}

}  // namespace culprit
