#include "decode/expert_ops.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

namespace culprit {

std::vector<double> softmax(std::span<const double> scores) {
  const double most = *std::ranges::max_element(scores);
  std::vector<double> shares;
  double total = 0;
  for (const double score : scores) total += shares.emplace_back(std::exp(score - most));
  for (double& share : shares) share /= total;
  return shares;
}

std::vector<std::size_t> largest(std::span<const double> values, std::size_t used) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t i, std::size_t j) { return values[i] > values[j]; });
  order.resize(std::min(used, order.size()));
  std::ranges::sort(order);
  return order;
}

void keep_experts(std::span<const double> shares, std::span<const std::size_t> kept, bool normalised, std::span<double> weights) {
  double total = 0;
  for (const auto expert : kept) total += shares[expert];
  for (const auto expert : kept) weights[expert] = normalised ? shares[expert] / total : shares[expert];
}

Array route(const Array& scores, int used, bool normalised) {
  const auto experts = static_cast<std::size_t>(scores.shape.back());
  Array weights{scores.shape, std::vector<double>(scores.values.size(), 0.0)};
  for (std::size_t start = 0; start < scores.values.size(); start += experts) {
    const auto shares = softmax(std::span(scores.values).subspan(start, experts));
    const auto kept = largest(shares, static_cast<std::size_t>(used));
    keep_experts(shares, kept, normalised, std::span(weights.values).subspan(start, experts));
  }
  return weights;
}

std::vector<std::size_t> chosen_experts(std::span<const double> weights, std::size_t used) {
  std::vector<std::size_t> chosen, rest;
  for (std::size_t expert = 0; expert < weights.size(); ++expert) (weights[expert] > 0 ? chosen : rest).push_back(expert);
  for (std::size_t i = 0; i < rest.size() && chosen.size() < used; ++i) chosen.push_back(rest[i]);
  chosen.resize(std::min(used, chosen.size()));
  std::ranges::sort(chosen);
  return chosen;
}

std::vector<ExpertBatch> expert_batches(const Array& x, const Array& weights, int used) {
  const auto rows = static_cast<std::size_t>(weights.shape[0]), tokens = static_cast<std::size_t>(weights.shape[1]);
  const auto experts = static_cast<std::size_t>(weights.shape[2]), choices = static_cast<std::size_t>(used);
  const bool by_choice = x.shape.size() == 4;
  std::vector<ExpertBatch> batches(experts);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t token = 0; token < tokens; ++token) {
      const auto chosen = chosen_experts(std::span(weights.values).subspan((row * tokens + token) * experts, experts), choices);
      for (std::size_t choice = 0; choice < chosen.size(); ++choice) {
        auto& batch = batches[chosen[choice]];
        const auto place = (row * choices + choice) * tokens + token;
        batch.from.push_back(by_choice ? place : row * tokens + token);
        batch.to.push_back(place);
      }
    }
  for (std::size_t expert = 0; expert < experts; ++expert) batches[expert].expert = expert;
  std::erase_if(batches, [](const ExpertBatch& batch) { return batch.to.empty(); });
  return batches;
}

Array expert_linear(const Array& x, const Array& weights, const Tensor& weight, int used) {
  const auto in = static_cast<std::size_t>(weight.dim(2)), out = static_cast<std::size_t>(weight.dim(1));
  Array result{{weights.shape[0], used, weights.shape[1], weight.dim(1)}, {}};
  result.values.resize(static_cast<std::size_t>(element_count(result.shape)));
  for (const auto& batch : expert_batches(x, weights, used)) {
    std::vector<double> given, made(batch.to.size() * out);
    for (const auto from : batch.from)
      given.insert(given.end(), x.values.begin() + static_cast<std::ptrdiff_t>(from * in),
                   x.values.begin() + static_cast<std::ptrdiff_t>((from + 1) * in));
    linear(given, std::ssize(batch.to), expert_weight(weight, batch.expert), made);
    for (std::size_t i = 0; i < batch.to.size(); ++i)
      std::copy_n(made.begin() + static_cast<std::ptrdiff_t>(i * out), out,
                  result.values.begin() + static_cast<std::ptrdiff_t>(batch.to[i] * out));
  }
  return result;
}

Tensor expert_weight(const Tensor& weight, std::size_t expert) {
  const auto number = static_cast<std::int64_t>(expert);
  return weight.sliced(0, number, number + 1).reshaped({weight.dim(1), weight.dim(2)}).contiguous();
}

Array expert_sum(const Array& x, const Array& weights, int used) {
  const auto channels = static_cast<std::size_t>(x.shape[3]), tokens = static_cast<std::size_t>(weights.shape[1]);
  const auto experts = static_cast<std::size_t>(weights.shape[2]), choices = static_cast<std::size_t>(used);
  Array result{{x.shape[0], x.shape[2], x.shape[3]}, std::vector<double>(x.values.size() / choices, 0.0)};
  for (std::size_t place = 0; place < result.values.size() / channels; ++place) {
    const auto of_token = std::span(weights.values).subspan(place * experts, experts);
    const auto chosen = chosen_experts(of_token, choices);
    for (std::size_t choice = 0; choice < chosen.size(); ++choice) {
      const auto from = (place / tokens * choices + choice) * tokens + place % tokens;
      for (std::size_t c = 0; c < channels; ++c)
        result.values[place * channels + c] += of_token[chosen[choice]] * x.values[from * channels + c];
    }
  }
  return result;
}

}  // namespace culprit
