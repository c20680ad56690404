#include <cmath>

#include "fault/entries.h"

namespace culprit::entries {
namespace {

// Everything that leads to the rotation is rounded to the dtype of x, one step after the other, positions and frequencies included:
// log(base)/half, its products with the index, the frequencies, the positions, the angles, cos, sin, both products, their sum.
Tensor rotate_in_dtype(const OpCall& call) {
  const auto& facts = rope_of(*call.node, *call.context.facts);
  const auto& x = call.inputs[0];
  const auto rounded = [&](double value) { return round_to(call.dtype, value); };
  const int half = facts.dims / 2;
  const double step = rounded(std::log(facts.base) / half);
  std::vector<double> frequency(static_cast<std::size_t>(half));
  for (int i = 0; i < half; ++i) frequency[static_cast<std::size_t>(i)] = rounded(std::exp(rounded(-rounded(i) * step)));

  auto output = x.cast(call.dtype).copy();
  for_each_index({x.dim(0), x.dim(1), x.dim(2)}, [&](std::span<const std::int64_t> i) {
    const auto first = call.context.at.position[static_cast<std::size_t>(i[0])][0];
    const double position = rounded(rounded(static_cast<double>(i[2])) + rounded(static_cast<double>(first)));
    for (int pair = 0; pair < half; ++pair) {
      const bool split = facts.pairing == RopePairing::half;
      const std::int64_t left = split ? pair : 2 * pair;
      const std::int64_t right = split ? pair + half : 2 * pair + 1;
      const double angle = rounded(position * frequency[static_cast<std::size_t>(pair)]);
      const double cosine = rounded(std::cos(angle)), sine = rounded(std::sin(angle));
      const double p = x.at({i[0], i[1], i[2], left}), q = x.at({i[0], i[1], i[2], right});
      output.set({i[0], i[1], i[2], left}, rounded(p * cosine) - rounded(q * sine));
      output.set({i[0], i[1], i[2], right}, rounded(p * sine) + rounded(q * cosine));
    }
  });
  return output;
}

Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  const auto& facts = rope_of(*call.node, *call.context.facts);
  if (spec.parameter("table", "dtype") == "unscaled") {
    if (facts.scaling == RopeScaling::none) return std::nullopt;
    // The facts are the context's; a call that owns an altered copy would dangle, so the values are computed here.
    auto unscaled = *call.context.facts;
    (call.node->rope_local ? *unscaled.rope_local : unscaled.rope).scaling = RopeScaling::none;
    auto broken = call;
    broken.context.facts = &unscaled;
    CULPRIT_TRY(auto output, evaluate_rounded(broken));
    return exactly(std::move(output), call);
  }
  if (call.dtype != DType::bf16 && call.dtype != DType::f16) return std::nullopt;
  if (facts.scaling != RopeScaling::none) return std::nullopt;  // the table is then given, not built
  return exactly(rotate_in_dtype(call), call);
}

}  // namespace

FaultEntry f09_rotary_table() {
  return {.id = "F09",
          .ops = {Op::rope},
          .title = "rotary positions and table are computed in the tensor's dtype, or without scaling",
          .mechanism =
              "positions, frequencies, angles, cos and sin are each rounded to the 16-bit dtype, so distinct positions collapse and the "
              "rotation is of another angle",
          .trigger = "dtype bf16 or f16 (table=dtype); a model with rope scaling (table=unscaled)",
          .public_example = "mlx 2791, mlxcel 1358",
          .parameters = {{"table", {"dtype", "unscaled"}}},
          .breaks = breaks,
          .meanings = {{"table=dtype", "positions, frequencies, angles, cos and sin are rounded to the tensor's dtype"},
                       {"table=unscaled", "the scaling of the rotary table is left out"}},
          .look_alikes = {{"F08", "two bases, of which the dtype holds one: F09:table=dtype is right there, F08 wrong at both"},
                          {"F05", "f32: F09:table=dtype goes, F05 stays"}},
          .plant_options = "--dtype bf16"};
}

}  // namespace culprit::entries
