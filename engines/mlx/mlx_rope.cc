#include "mlx_rope.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "decode/ops.h"

namespace culprit::mlx_engine {
namespace {

// One offset for each index of axis 0. A collapsed [row * head, ..] input repeats its row's offset for each head.
Result<std::vector<std::int32_t>> offsets_of(const kit::OpRequest& request) {
  const auto& x = unwrap(request.inputs[0]);
  if (x.ndim() != 3 && x.ndim() != 4) return fail("tensor-layout", fmt::format("rope takes rank 3 or 4, got {}", x.ndim()));
  const auto given = static_cast<std::int64_t>(request.offset.size());
  const std::int64_t length = x.shape(0);
  if (given == 0 || (given > 1 && length % given != 0))
    return fail("tensor-layout", fmt::format("{} offsets do not fit an axis 0 of length {}", given, length));
  const auto repeat = given == 1 ? 1 : length / given;
  std::vector<std::int32_t> offsets;
  for (const auto offset : request.offset) {
    if (offset < 0 || offset > std::numeric_limits<std::int32_t>::max() - x.shape(-2))
      return fail("not-supported", fmt::format("position {} is out of MLX's 32-bit range", offset));
    offsets.insert(offsets.end(), static_cast<std::size_t>(repeat), static_cast<std::int32_t>(offset));
  }
  return offsets;
}

mx::array f32_vector(const std::vector<double>& values) {
  std::vector<float> rounded(values.begin(), values.end());
  return mx::array(rounded.begin(), mx::Shape{static_cast<int>(rounded.size())}, mx::float32);
}

}  // namespace

Result<mx::array> rope_fused(const kit::OpRequest& request) {
  CULPRIT_TRY(const auto offsets, offsets_of(request));
  const auto& facts = rope_of(*request.node, *request.facts);
  std::optional<float> base = static_cast<float>(facts.base);
  std::optional<mx::array> wavelengths;
  float scale = 1;
  if (facts.scaling == RopeScaling::linear) scale = static_cast<float>(1 / facts.factor);
  // MLX takes the reciprocals of the inverse frequencies: infinity for a pair that stands still.
  if (facts.scaling == RopeScaling::llama3 || facts.scaling == RopeScaling::proportional) {
    auto reciprocals = rope_frequencies(facts);
    for (auto& value : reciprocals) value = 1 / value;
    wavelengths = f32_vector(reciprocals);
    base = std::nullopt;
  }
  const auto& x = unwrap(request.inputs[0]);
  const bool interleaved = facts.pairing == RopePairing::interleaved;
  if (offsets.size() == 1) return mx::fast::rope(x, facts.dims, interleaved, base, scale, offsets[0], wavelengths);
  const mx::array per_row(offsets.begin(), mx::Shape{static_cast<int>(offsets.size())}, mx::int32);
  return mx::fast::rope(x, facts.dims, interleaved, base, scale, per_row, wavelengths);
}

Result<mx::array> rope_composed(const kit::OpRequest& request) {
  CULPRIT_TRY(const auto offsets, offsets_of(request));
  const auto& facts = rope_of(*request.node, *request.facts);
  const auto& original = unwrap(request.inputs[0]);
  const auto x = mx::astype(original, mx::float32);
  const int tokens = x.shape(-2), channels = x.shape(-1), half = facts.dims / 2;
  const int rank = static_cast<int>(x.ndim());

  // Positions are exact in f32 up to 2^24, far beyond any context. [offset, .., token, 1]
  std::vector<float> positions;
  for (const auto offset : offsets)
    for (int t = 0; t < tokens; ++t) positions.push_back(static_cast<float>(offset + t));
  mx::Shape position_shape{static_cast<int>(offsets.size()), tokens, 1};
  if (rank == 4) position_shape = mx::Shape{static_cast<int>(offsets.size()), 1, tokens, 1};
  const auto angle = mx::multiply(mx::array(positions.begin(), position_shape, mx::float32), f32_vector(rope_frequencies(facts)));
  const auto cosine = mx::cos(angle), sine = mx::sin(angle);

  const auto channel_slice = [&](const mx::array& array, int begin, int end) {
    mx::Shape start(static_cast<std::size_t>(array.ndim()), 0);
    mx::Shape stop = array.shape();
    start[array.ndim() - 1] = begin;
    stop[array.ndim() - 1] = end;
    return mx::slice(array, start, stop);
  };
  const auto rotated = [&](const mx::array& first, const mx::array& second) {
    return std::pair{mx::subtract(mx::multiply(first, cosine), mx::multiply(second, sine)),
                     mx::add(mx::multiply(first, sine), mx::multiply(second, cosine))};
  };
  std::vector<mx::array> parts;
  if (facts.pairing == RopePairing::half) {
    const auto [first, second] = rotated(channel_slice(x, 0, half), channel_slice(x, half, facts.dims));
    parts = {first, second};
  } else {
    const auto dims = channel_slice(x, 0, facts.dims);
    auto pair_shape = dims.shape();
    pair_shape[static_cast<std::size_t>(rank) - 1] = half;
    pair_shape.push_back(2);
    const auto pairs = mx::reshape(dims, pair_shape);
    const auto member = [&](int index) { return mx::take(pairs, index, -1); };
    const auto [first, second] = rotated(member(0), member(1));
    parts = {mx::reshape(mx::stack({first, second}, -1), dims.shape())};
  }
  if (facts.dims < channels) parts.push_back(channel_slice(x, facts.dims, channels));
  return mx::astype(parts.size() == 1 ? parts[0] : mx::concatenate(parts, -1), original.dtype());
}

}  // namespace culprit::mlx_engine
