#include "audit/weights.h"

#include <cassert>
#include <cmath>
#include <cstring>

#include "base/pool.h"

namespace culprit {

Result<Tensor> ModelWeights::dense(const std::string& canonical) {
  if (const auto found = dense_.find(canonical); found != dense_.end()) return found->second;
  CULPRIT_TRY(const auto weight, model_.weight(canonical, fault_));
  const auto values = (weight.quantized() ? weight.to_f32() : weight.dense).contiguous();
  // A dense checkpoint tensor goes through f32 as well: that is what "logical f32 values, rounded once" says of an f64 one.
  const auto made = values.cast(DType::f32).cast(dtype_);
  const auto bytes = made.count() * static_cast<std::int64_t>(size_of(dtype_));
  if (bytes <= budget_) {
    budget_ -= bytes;
    dense_[canonical] = made;
  }
  return made;
}

Result<std::optional<QuantizedValues>> ModelWeights::quantized(const std::string& canonical) {
  CULPRIT_TRY(const auto weight, model_.weight(canonical, fault_));
  if (!weight.quantized()) return std::nullopt;
  return quantized_values(weight, dtype_);
}

Result<std::optional<Weight>> ModelWeights::packed(const std::string& canonical) {
  CULPRIT_TRY(auto weight, model_.weight(canonical, fault_));
  if (!weight.quantized()) return std::nullopt;
  weight.scales = weight.scales.cast(dtype_);
  weight.biases = weight.biases.cast(dtype_);
  return weight;
}

QuantizedValues quantized_values(const Weight& weight, DType dtype) {
  assert(weight.quantized());
  const auto shape = weight.shape();
  const std::int64_t columns = shape.back(), rows = element_count(shape) / columns, groups = columns / weight.group;
  const auto scales = weight.scales.cast(dtype).values();
  const auto biases = weight.biases.cast(dtype).values();
  const Tensor packed_tensor = weight.packed.contiguous();
  const auto packed = packed_tensor.contiguous_bytes();
  QuantizedValues made{Tensor::zeros(DType::f32, shape), Tensor::zeros(DType::f32, shape)};
  const auto value = made.value.mutable_bytes(), magnitude = made.magnitude.mutable_bytes();
  const auto row_bytes = static_cast<std::size_t>(packed_tensor.dim(-1)) * sizeof(std::uint32_t);
  const std::uint32_t mask = (1U << weight.bits) - 1;
  parallel_for(static_cast<std::size_t>(rows), 64, [&](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row)
      for (std::int64_t column = 0; column < columns; ++column) {
        // A value of at most 8 bits lies in two bytes of the row's little-endian bit stream.
        const auto bit = static_cast<std::size_t>(column * weight.bits);
        const auto* stream = packed.data() + row * row_bytes;
        auto window = std::to_integer<std::uint32_t>(stream[bit / 8]);
        if (bit / 8 + 1 < row_bytes) window |= std::to_integer<std::uint32_t>(stream[bit / 8 + 1]) << 8;
        const auto q = static_cast<double>(window >> (bit % 8) & mask);
        const auto group = row * static_cast<std::size_t>(groups) + static_cast<std::size_t>(column / weight.group);
        const double scaled = scales[group] * q, bias = biases[group];
        // The magnitude is rounded up, so that it stays a bound.
        const auto exact = static_cast<float>(scaled + bias);
        const auto above = std::nextafter(static_cast<float>(std::abs(scaled) + std::abs(bias)), HUGE_VALF);
        const auto place = (row * static_cast<std::size_t>(columns) + static_cast<std::size_t>(column)) * sizeof(float);
        std::memcpy(value.data() + place, &exact, sizeof exact);
        std::memcpy(magnitude.data() + place, &above, sizeof above);
      }
  });
  return made;
}

}  // namespace culprit
