#include "decode/affine_groups.h"
#include "fault/entries.h"
#include "fault/packed_call.h"

namespace culprit::entries {
namespace {

// What is new in the cache is quantised as it should be and read with other scales, or, keys only, stored as it is. Earlier tokens are as
// they were: they had their turn.
Result<std::optional<Broken>> breaks_cache(const std::string& scale, const OpCall& call) {
  const auto& spec = call.context.cache_spec;
  if (!spec.quantizes() || call.inputs.at(0).dim(-1) % spec.group != 0) return std::nullopt;
  auto broken = call;
  if (scale == "unquantised") {
    if (tap_role(call.node->output) != "k_cache") return std::nullopt;
  } else {
    auto groups = quantise_groups(call.inputs[0], spec);
    groups.scales = misread_scales(groups.scales, scale);
    broken.inputs[0] = dequantise_groups(groups, spec);
  }
  broken.context.cache_spec = {};  // the values are moved as they are
  CULPRIT_TRY(auto output, evaluate_rounded(broken));
  return exactly(std::move(output), call);
}

Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  const auto scale = spec.parameter("scale", "one");
  if (call.node->op == Op::cache_write) return breaks_cache(scale, call);
  if (call.packed == nullptr || scale == "unquantised") return std::nullopt;
  auto weight = *call.packed;
  weight.scales = misread_scales(weight.scales, scale);
  return altered(with_packed(call, std::move(weight)));
}

}  // namespace

FaultEntry f17_scale_misread() {
  return {
      .id = "F17",
      .ops = {Op::linear, Op::expert_linear, Op::cache_write},
      .title = "quantised values are read with other scales than their own, or keys are not quantised",
      .mechanism =
          "each group's scale is 1 (one), a byte of the scales' storage (raw_byte), that of a quarter of its index (quarter) or the next "
          "group's (neighbour); or a quantised cache holds its keys as they were written (unquantised)",
      .trigger = "a packed weight, or a quantised cache; unquantised: keys only",
      .public_example = "sglang 20705, mlx 3762",
      .parameters = {{"scale", {"one", "raw_byte", "quarter", "neighbour", "unquantised"}}},
      .breaks = breaks,
      .meanings = {{"scale=one", "1 for each group"},
                   {"scale=raw_byte", "the storage of the scales read as bytes: group i takes byte i as a whole number"},
                   {"scale=quarter", "group g of a row takes the scale of group g / 4, rounded down"},
                   {"scale=neighbour", "the next group's in storage; the last keeps its own"},
                   {"scale=unquantised", "a quantised cache holds its keys as they were written"}},
      .look_alikes = {{"F03", "row 0, or one row alone: wrong under F17, right under F03"},
                      {"F24", "a step of several tokens on the same packed weights: wrong under F17, right under F24"},
                      {"F06", "the slot behind the one that is wrong: F17 moves nothing, so a slot that holds no token's values is F06's"}},
      .plant_model = "llama --size small --bits 4"};
}

}  // namespace culprit::entries
