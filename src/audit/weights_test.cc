#include "audit/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "audit/ops/linear.h"
#include "audit/summary.h"
#include "audit/test_trace.h"
#include "base/test_dir.h"

namespace culprit {
namespace {

// Two rows of two groups of 32, 4 bits: q runs through its values.
Weight four_bit_weight() {
  Weight weight;
  weight.bits = 4;
  weight.group = 32;
  weight.source_type = "Q4_1";
  weight.packed = Tensor::zeros(DType::u32, {2, 8});
  for (std::size_t word = 0; word < 16; ++word) {
    const std::uint32_t bits = 0x76543210U + 0x11111111U * static_cast<std::uint32_t>(word % 8);
    std::memcpy(weight.packed.mutable_bytes().data() + 4 * word, &bits, sizeof bits);
  }
  weight.scales = Tensor::from_values(DType::f16, {2, 2}, std::vector<double>{0.1, 0.2003, 3.001, 1e-3});
  weight.biases = Tensor::from_values(DType::f16, {2, 2}, std::vector<double>{-0.75, 0.5, -20, 7});
  return weight;
}

TEST(weights, quantised_values_in_the_checkpoints_own_precision_are_the_logical_ones) {
  const auto weight = four_bit_weight();
  const auto made = quantized_values(weight, DType::f32);
  EXPECT_EQ(made.value.values(), weight.to_f32().values());
}

TEST(weights, quantised_values_of_every_width_are_the_logical_ones) {
  for (const int bits : {2, 3, 5, 6, 8}) {
    auto weight = four_bit_weight();
    weight.bits = bits;
    weight.packed = Tensor::zeros(DType::u32, {2, 64 * bits / 32});
    for (std::size_t i = 0; i < weight.packed.mutable_bytes().size(); ++i) weight.packed.mutable_bytes()[i] = std::byte(37 * i + 11);
    EXPECT_EQ(quantized_values(weight, DType::f32).value.values(), weight.to_f32().values()) << bits;
  }
}

TEST(weights, quantised_values_of_experts_are_the_logical_ones) {
  auto weight = four_bit_weight();
  const auto flat = quantized_values(weight, DType::f32);
  for (auto* part : {&weight.packed, &weight.scales, &weight.biases}) *part = part->reshaped({2, 1, part->dim(1)});
  const auto experts = quantized_values(weight, DType::f32);
  EXPECT_EQ(experts.value.shape(), (Shape{2, 1, 64}));
  EXPECT_EQ(experts.value.values(), flat.value.values());
  EXPECT_EQ(experts.magnitude.values(), flat.magnitude.values());
}

TEST(weights, scales_and_biases_are_rounded_to_the_run) {
  const auto weight = four_bit_weight();
  const auto made = quantized_values(weight, DType::bf16);
  const double scale = round_to(DType::bf16, round_to(DType::f16, 0.1)), bias = round_to(DType::bf16, -0.75);
  EXPECT_EQ(made.value.at({0, 3}), static_cast<double>(static_cast<float>(3 * scale + bias)));
  EXPECT_GE(made.magnitude.at({0, 3}), 3 * scale - bias);
  EXPECT_NEAR(made.magnitude.at({0, 3}), 3 * scale - bias, 1e-6);
  EXPECT_NE(made.value.values(), weight.to_f32().values());
}

// An engine that sums scale q x and bias x apart has larger terms than scale q + bias: legal, and within the bound.
TEST(weights, terms_that_cancel_are_bounded_by_their_parts) {
  const auto weight = four_bit_weight();
  const auto made = quantized_values(weight, DType::f32);
  std::vector<double> x;
  for (int i = 0; i < 64; ++i) x.push_back(static_cast<float>(std::sin(i) * 1e3));
  const auto bounds = bounded_linear(x, 1, made.value, made.magnitude, {}, DType::f32, {});
  const auto naive = bounded_linear(x, 1, made.value, {}, {}, DType::f32, {});
  for (std::size_t row = 0; row < 2; ++row) {
    EXPECT_EQ(bounds.value[row], naive.value[row]);
    EXPECT_GT(bounds.bound[row], naive.bound[row]);
    float quants = 0, biases = 0;
    for (std::size_t i = 0; i < 64; ++i) {
      const auto r = static_cast<std::int64_t>(row), g = static_cast<std::int64_t>(i / 32);
      const auto q = static_cast<float>((i % 8 + (row * 8 + i / 8) % 8) % 16);
      quants += static_cast<float>(x[i]) * (static_cast<float>(weight.scales.at({r, g})) * q);
      biases += static_cast<float>(x[i]) * static_cast<float>(weight.biases.at({r, g}));
    }
    EXPECT_LE(std::abs(static_cast<double>(quants + biases) - bounds.value[row]), bounds.bound[row]);
  }
}

TEST(weights, dense_weights_are_rounded_once_and_kept_within_the_budget) {
  const TestDir dir;
  const auto model = tiny_model(dir / "model", 1);
  ModelWeights kept(model, DType::bf16), not_kept(model, DType::bf16, {}, 0);
  const auto name = model.weight_names().front();
  const auto first = must(kept.dense(name));
  EXPECT_EQ(first.dtype(), DType::bf16);
  EXPECT_EQ(first.values(), must(model.weight(name)).to_f32().cast(DType::bf16).values());
  EXPECT_EQ(first.layout().storage_id, must(kept.dense(name)).layout().storage_id);
  EXPECT_NE(must(not_kept.dense(name)).layout().storage_id, must(not_kept.dense(name)).layout().storage_id);
  EXPECT_FALSE(must(kept.quantized(name)));
  EXPECT_FALSE(kept.dense("w.nothing"));
}

TEST(summary, has_a_row_for_each_op_and_dtype_and_marks_loose_bounds) {
  const TestDir dir;
  const auto model = tiny_model(dir / "model", 1);
  std::vector<AuditReport> reports;
  for (const auto dtype : {DType::f32, DType::bf16}) {
    ModelWeights weights(model, dtype);
    const auto trace = write_trace(dir / std::string(name_of(dtype)), model, small_run(dtype));
    reports.push_back(must(audit(model, weights, {&trace}))[0]);
  }
  const auto summaries = summarise(model.graph(), {&reports[0], &reports[1]});
  std::set<Op> ops;
  for (const auto& node : model.graph().nodes()) ops.insert(node.op);
  EXPECT_EQ(summaries.size(), 2 * ops.size());
  for (const auto& summary : summaries) {
    EXPECT_GT(summary.judged, 0);
    EXPECT_EQ(summary.over, 0);
    const bool one_rounding = summary.op == Op::add || summary.op == Op::linear;
    if (summary.dtype == DType::bf16 && one_rounding) {
      EXPECT_GT(summary.rounding_ratio_max, 0.9);
    }
  }
}

}  // namespace
}  // namespace culprit
