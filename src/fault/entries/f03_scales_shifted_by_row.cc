#include <algorithm>

#include "fault/entries.h"
#include "fault/packed_call.h"

namespace culprit::entries {
namespace {

/// `plane` [out, group] read from `rows` rows further on.
Tensor shifted(const Tensor& plane, std::int64_t rows, const std::string& beyond) {
  const auto right = plane.values();
  const auto groups = plane.dim(-1), out = plane.dim(0);
  std::vector<double> values(right.size(), 0.0);
  for (std::int64_t row = 0; row < out; ++row) {
    auto from = row + rows;
    if (from >= out && beyond == "zero") continue;
    from = beyond == "first" ? from % out : std::min(from, out - 1);
    std::copy_n(right.begin() + from * groups, groups, values.begin() + row * groups);
  }
  return Tensor::from_values(plane.dtype(), plane.shape(), values);
}

// The offset of the batch is added to the scales' address too, though all rows share one weight: row z reads them z rows further on.
Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  if (call.packed == nullptr || call.inputs.at(0).dim(0) < 2 || call.packed->scales.rank() != 2) return std::nullopt;
  const auto beyond = spec.parameter("beyond", "zero");
  const bool both = spec.parameter("planes", "scales") == "both";
  auto calls = calls_by_row(call);
  std::vector<double> values = calls[0].result.values();
  for (std::size_t row = 1; row < calls.size(); ++row) {
    auto weight = *call.packed;
    weight.scales = shifted(weight.scales, static_cast<std::int64_t>(row), beyond);
    if (both) weight.biases = shifted(weight.biases, static_cast<std::int64_t>(row), beyond);
    calls[row] = with_packed(std::move(calls[row]), std::move(weight));
    CULPRIT_TRY(const auto output, evaluate_rounded(calls[row]));
    const auto of_row = output.values();
    values.insert(values.end(), of_row.begin(), of_row.end());
  }
  auto broken = exactly(Tensor::from_values(call.dtype, call.result.shape(), values), call);
  if (broken) broken->altered_rows = std::move(calls);
  return broken;
}

}  // namespace

FaultEntry f03_scales_shifted_by_row() {
  return {.id = "F03",
          .ops = {Op::linear},
          .title = "row z of a batch uses scales that are shifted by z rows",
          .mechanism =
              "the batch's stride is added to the address of the scales although all rows share one weight: row z takes those of output "
              "channel c + z for channel c, and beyond the last channel what lies there",
          .trigger = "more than one row, and a packed weight",
          .public_example = "transformers 47331",
          .parameters = {{"planes", {"scales", "both"}}, {"beyond", {"zero", "last", "first"}}},
          .breaks = breaks,
          .meanings = {{"planes=scales", "the scales alone are shifted"},
                       {"planes=both", "scales and biases are"},
                       {"beyond=zero", "zeros lie beyond the last output channel"},
                       {"beyond=last", "the last channel's are taken again"},
                       {"beyond=first", "it goes on from the first channel"}},
          .look_alikes = {{"F01", "the same rows on dense weights: F03 goes, F01 stays"},
                          {"F04", "the same rows on dense weights: F03 goes, F04 stays"},
                          {"F17", "row 0, or one row alone: right under F03, wrong under F17"},
                          {"F24", "two tokens in one row: right under F24 and F03; one token in one row: wrong under F24 only"}},
          .plant_model = "llama --size small --bits 4"};
}

}  // namespace culprit::entries
