#include <string>

#include "fault/entries.h"
#include "fault/packed_call.h"

namespace culprit::entries {
namespace {

/// `plane` [.., group] with the last group of each row 0.
Tensor without_last_group(const Tensor& plane) {
  auto values = plane.values();
  const auto groups = static_cast<std::size_t>(plane.dim(-1));
  for (std::size_t i = groups - 1; i < values.size(); i += groups) values[i] = 0;
  return Tensor::from_values(plane.dtype(), plane.shape(), values);
}

/// 4-bit words with both halves of each byte exchanged.
Tensor halves_exchanged(const Tensor& packed) {
  auto words = packed.copy();
  for (auto& byte : words.mutable_bytes()) byte = (byte >> 4) | (byte << 4);
  return words;
}

// A step of one token takes a path of its own (matrix times vector), which gets the weight wrong; several tokens take the right one.
Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  if (call.packed == nullptr || tokens_of_input(call) != 1 || spec.parameter("bits", "4") != std::to_string(call.packed->bits))
    return std::nullopt;
  const auto term = spec.parameter("term", "bias");
  auto weight = *call.packed;
  if (term == "bias") weight.biases = Tensor::zeros(weight.biases.dtype(), weight.biases.shape());
  if (term == "scale") weight.scales = misread_scales(weight.scales, "one");
  if (term == "tail") {
    weight.scales = without_last_group(weight.scales);
    weight.biases = without_last_group(weight.biases);
  }
  if (term == "codes") {
    if (weight.bits != 4) return std::nullopt;
    weight.packed = halves_exchanged(weight.packed);
  }
  return altered(with_packed(call, std::move(weight)));
}

}  // namespace

FaultEntry f24_matvec_of_packed_weight() {
  return {
      .id = "F24",
      .ops = {Op::linear},
      .title = "matrix times vector is wrong for one quantised type, matrix times matrix is right",
      .mechanism =
          "the path for a single token reads a packed weight of that width without its biases (bias), with scales of 1 (scale), without "
          "the last group of each row (tail) or with neighbouring codes exchanged (codes)",
      .trigger = "one token, and a packed weight of that many bits",
      .public_example = "ik_llama 2214, mlx 3550",
      .parameters = {{"term", {"bias", "scale", "tail", "codes"}}, {"bits", {"4", "8", "2", "3", "5", "6"}}},
      .breaks = breaks,
      .meanings = {{"term=bias", "the groups' biases (minima) are left out"},
                   {"term=scale", "the scales are taken as 1"},
                   {"term=tail", "the last group of each row is left out"},
                   {"term=codes", "the two codes of a byte are exchanged; 4 bits only"},
                   {"bits=4", "weights of 4 bits"},
                   {"bits=8", "weights of 8 bits"},
                   {"bits=2", "weights of 2 bits"},
                   {"bits=3", "weights of 3 bits"},
                   {"bits=5", "weights of 5 bits"},
                   {"bits=6", "weights of 6 bits"}},
      .look_alikes = {{"F17", "a step of several tokens on the same packed weights: right under F24, wrong under F17"},
                      {"F03", "one row alone: wrong under F24, right under F03"}},
      .plant_model = "llama --size small --bits 4"};
}

}  // namespace culprit::entries
