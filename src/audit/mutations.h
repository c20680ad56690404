#pragma once
// Law 8: ways to spoil a tensor that no comparison may let pass. For tests of the comparer, the auditor and the reports.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "num/dtype.h"
#include "tensor/tensor.h"

namespace culprit {

struct Mutation {
  std::string_view name;
  /// The spoilt values, or nothing when it cannot be done here. `previous` is the tensor one step before, or empty.
  std::optional<std::vector<double>> (*spoil)(const Tensor& honest, const Tensor& previous);
};

namespace mutations {

inline std::size_t largest_place(const std::vector<double>& values) {
  return static_cast<std::size_t>(std::ranges::max_element(values, {}, [](double x) { return std::abs(x); }) - values.begin());
}
inline std::size_t some_place(const std::vector<double>& values) { return values.size() * 5 / 7; }

inline std::optional<std::vector<double>> with(const Tensor& honest, double value) {
  auto values = honest.values();
  values[some_place(values)] = value;
  return values;
}
inline std::optional<std::vector<double>> nan(const Tensor& honest, const Tensor&) {
  return with(honest, std::numeric_limits<double>::quiet_NaN());
}
inline std::optional<std::vector<double>> infinity(const Tensor& honest, const Tensor&) {
  return with(honest, std::numeric_limits<double>::infinity());
}
inline std::optional<std::vector<double>> overflow(const Tensor& honest, const Tensor&) {
  return with(honest, -rounding_of(honest.dtype()).largest);
}
inline std::optional<std::vector<double>> outlier(const Tensor& honest, const Tensor&) {
  const auto values = honest.values();
  return with(honest, 4 * std::abs(values[largest_place(values)]));
}
inline std::optional<std::vector<double>> sign(const Tensor& honest, const Tensor&) {
  auto values = honest.values();
  for (auto& value : values) value = -value;
  return values;
}
inline std::optional<std::vector<double>> sign_of_one(const Tensor& honest, const Tensor&) {
  auto values = honest.values();
  auto& value = values[largest_place(values)];
  value = -value;
  return values;
}
inline std::optional<std::vector<double>> shift(const Tensor& honest, const Tensor&) {
  auto values = honest.values();
  std::ranges::rotate(values, values.begin() + 1);
  return values;
}
inline std::optional<std::vector<double>> zero(const Tensor& honest, const Tensor&) {
  return std::vector<double>(static_cast<std::size_t>(honest.count()), 0.0);
}
// The bytes of a transposed tensor under the shape of the right one, for the last two axes that change anything.
inline std::optional<std::vector<double>> transposed(const Tensor& honest, const Tensor&) {
  const auto right = honest.values();
  for (int second = honest.rank() - 1; second > 0; --second)
    for (int first = second - 1; first >= 0; --first)
      if (auto values = honest.transposed(first, second).values(); values != right) return values;
  return right;
}
// A write that never happened: the buffer of the step before, and zeros where it has grown since.
inline std::optional<std::vector<double>> stale(const Tensor& honest, const Tensor& previous) {
  if (previous.rank() == 0) return std::nullopt;
  if (previous.shape() == honest.shape()) return previous.values();
  auto spoilt = Tensor::zeros(honest.dtype(), honest.shape());
  for_each_index(previous.shape(), [&](std::span<const std::int64_t> index) { spoilt.set(index, previous.at(index)); });
  return spoilt.values();
}

inline constexpr Mutation kAll[] = {
    {"nan", nan},
    {"infinity", infinity},
    {"overflow", overflow},
    {"one outlier", outlier},
    {"sign", sign},
    {"sign of one", sign_of_one},
    {"shift by one", shift},
    {"all zero", zero},
    {"transposed", transposed},
    {"stale", stale},
};

}  // namespace mutations
}  // namespace culprit
