#include "decode/affine_groups.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

namespace culprit {
namespace {

constexpr std::size_t kWordBits = 32;

struct Group {
  double scale = 0, bias = 0;
};

Group group_of(std::span<const double> values, double levels) {
  double smallest = std::numeric_limits<double>::infinity(), largest = -smallest;
  for (const double value : values) {
    smallest = std::min(smallest, value);
    largest = std::max(largest, value);
  }
  const double step = std::max((largest - smallest) / levels, kAffineStepLeast);
  const bool from_below = std::abs(smallest) > std::abs(largest);
  const double edge = from_below ? smallest : largest, towards_other_end = from_below ? step : -step;
  const double k = std::nearbyint(edge / towards_other_end);
  if (k == 0) return {towards_other_end, 0};
  return {edge / k, edge};
}

Shape with_last(Shape shape, std::int64_t last) {
  shape.back() = last;
  return shape;
}

}  // namespace

AffineGroups quantise_groups(const Tensor& x, const CacheSpec& spec) {
  const auto channels = x.shape().back();
  assert(channels % spec.group == 0 && is_float(x.dtype()));
  const auto bits = static_cast<std::size_t>(spec.bits), group = static_cast<std::size_t>(spec.group);
  const double levels = std::exp2(static_cast<double>(bits)) - 1;
  const auto values = x.values();
  std::vector<std::uint32_t> words(values.size() * bits / kWordBits);
  std::vector<double> scales, biases;
  for (std::size_t begin = 0; begin < values.size(); begin += group) {
    const auto [scale, bias] = group_of(std::span(values).subspan(begin, group), levels);
    for (std::size_t i = begin; i < begin + group; ++i) {
      const double q = std::nearbyint((values[i] - bias) / scale);
      const auto level = static_cast<std::uint32_t>(q > 0 ? std::min(q, levels) : 0);  // NaN is 0
      words[i * bits / kWordBits] |= level << (i * bits % kWordBits);
    }
    scales.push_back(scale);
    biases.push_back(bias);
  }
  AffineGroups groups;
  groups.packed = Tensor::zeros(DType::u32, with_last(x.shape(), channels * spec.bits / static_cast<std::int64_t>(kWordBits)));
  if (!words.empty()) std::memcpy(groups.packed.mutable_bytes().data(), words.data(), words.size() * sizeof(words[0]));
  groups.scales = Tensor::from_values(x.dtype(), with_last(x.shape(), channels / spec.group), scales);
  groups.biases = Tensor::from_values(x.dtype(), with_last(x.shape(), channels / spec.group), biases);
  return groups;
}

Tensor dequantise_groups(const AffineGroups& groups, const CacheSpec& spec) {
  const auto bits = static_cast<std::size_t>(spec.bits), group = static_cast<std::size_t>(spec.group);
  const auto words = groups.packed.values(), scales = groups.scales.values(), biases = groups.biases.values();
  const auto mask = (std::uint32_t{1} << bits) - 1;
  std::vector<double> values(scales.size() * group);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto word = static_cast<std::uint32_t>(words[i * bits / kWordBits]);
    values[i] = scales[i / group] * static_cast<double>(word >> (i * bits % kWordBits) & mask) + biases[i / group];
  }
  return Tensor::from_values(groups.scales.dtype(), with_last(groups.scales.shape(), groups.scales.shape().back() * spec.group), values);
}

}  // namespace culprit
