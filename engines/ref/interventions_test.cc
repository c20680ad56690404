// Planted faults and interventions touch what they name, and nothing else.
#include "engines/ref/test_engine.h"

namespace culprit::ref {
namespace {

using Kind = Intervention::Kind;
using Names = std::vector<std::string>;

RunPlan with_faults(RunPlan plan, const Names& faults) {
  for (const auto& fault : faults) plan.faults.push_back(*FaultSpec::parse(fault));
  return plan;
}

RunPlan with(RunPlan plan, Intervention intervention) {
  plan.interventions.push_back(std::move(intervention));
  return plan;
}

/// Rows (axis 0) in which two tensors of a shape differ.
std::vector<int> rows_differing(const Tensor& expected, const Tensor& actual) {
  std::vector<int> rows;
  for (std::int64_t row = 0; row < expected.dim(0); ++row)
    if (expected.sliced(0, row, row + 1).values() != actual.sliced(0, row, row + 1).values()) rows.push_back(static_cast<int>(row));
  return rows;
}

TEST(Faults, F01LeavesRowsBehindTheFirstUnrotatedAtOneToken) {
  TestEngine engine;
  const auto plan = three_rows({3, 1});
  const auto right = engine.run(plan);
  const auto broken = engine.run(with_faults(plan, {"F01:content=input"}));
  for (const auto& name : differing(right, broken)) EXPECT_TRUE(name.ends_with("@1")) << name << " is of the prefill";
  EXPECT_EQ(rows_differing(tensor_at(right, 1, "layers.0.q_rope"), tensor_at(broken, 1, "layers.0.q_rope")), (std::vector<int>{1, 2}));
  EXPECT_EQ(rows_differing(tensor_at(right, 1, "layers.0.k_rope"), tensor_at(broken, 1, "layers.0.k_rope")), (std::vector<int>{1, 2}));
  EXPECT_EQ(tensor_at(broken, 1, "layers.0.q_rope").sliced(0, 2, 3).values(), tensor_at(right, 1, "layers.0.q").sliced(0, 2, 3).values());
  EXPECT_EQ(note_at(broken, 1, "layers.2.q_rope"), "fault:F01");
  EXPECT_EQ(note_at(broken, 1, "layers.2.attn"), "");
  EXPECT_EQ(note_at(broken, 0, "layers.2.q_rope"), "");
}

TEST(Faults, F01AfterACollapseLeavesHeadsBehindTheFirst) {
  TestEngine engine;
  auto plan = three_rows({3, 1});
  plan.sequences.resize(1);
  plan.variants["rope.rank"] = "3";
  const auto right = engine.run(plan);
  const auto broken = engine.run(with_faults(plan, {"F01:content=zero"}));
  const auto expected = tensor_at(right, 1, "layers.0.q_rope"), actual = tensor_at(broken, 1, "layers.0.q_rope");
  EXPECT_EQ(expected.sliced(1, 0, 1).values(), actual.sliced(1, 0, 1).values());
  for (const double value : actual.sliced(1, 1, actual.dim(1)).values()) EXPECT_EQ(value, 0);
  plan.variants.erase("rope.rank");
  EXPECT_EQ(differing(engine.run(plan), engine.run(with_faults(plan, {"F01:content=zero"}))), Names{}) << "one row at rank 4 is whole";
}

TEST(Faults, APerRowOffsetTakesAnotherPath) {
  TestEngine engine;
  auto plan = three_rows({3, 1});
  plan.variants["rope.offset"] = "per_row";
  EXPECT_EQ(differing(engine.run(plan), engine.run(with_faults(plan, {"F01:content=zero"}))), Names{});
}

TEST(Faults, ApplyOnlyWhereTheirGlobSays) {
  TestEngine engine;
  const auto plan = three_rows({3, 1});
  const auto right = engine.run(plan);
  const auto broken = engine.run(with_faults(plan, {"F01:content=zero,tap=layers.1.k_rope"}));
  const auto names = differing(right, broken);
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(right.find(1, "layers.1.q_rope")->hash, broken.find(1, "layers.1.q_rope")->hash);
  EXPECT_EQ(right.find(1, "layers.0.residual")->hash, broken.find(1, "layers.0.residual")->hash);
  EXPECT_NE(right.find(1, "layers.1.k_rope")->hash, broken.find(1, "layers.1.k_rope")->hash);
  EXPECT_EQ(note_at(broken, 1, "layers.1.k_rope"), "fault:F01");
  EXPECT_EQ(note_at(broken, 1, "layers.0.k_rope"), "");
}

TEST(Faults, StaleContentIsWhatTheStepBeforeWrote) {
  TestEngine engine;
  const auto plan = three_rows({3, 1, 1});
  const auto broken = engine.run(with_faults(plan, {"F01:content=stale,tap=layers.0.q_rope"}));
  const auto before = tensor_at(broken, 1, "layers.0.q_rope").sliced(0, 1, 3),
             after = tensor_at(broken, 2, "layers.0.q_rope").sliced(0, 1, 3);
  EXPECT_EQ(before.values(), after.values());
}

class CacheFaults : public testing::TestWithParam<const char*> {};

// The hole that F06 leaves at step 1 is still in the cache at step 2.
TEST_P(CacheFaults, StayInTheCache) {
  TestEngine engine;
  auto plan = three_rows({3, 1, 1});
  plan.cache = GetParam();
  const auto broken = engine.run(with_faults(plan, {"F06:content=zero,tap=layers.0.k_cache"}));
  for (int step = 1; step <= 2; ++step)
    for (const double value : tensor_at(broken, step, "layers.0.k_cache").sliced(2, 3, 4).values()) EXPECT_EQ(value, 0) << step;
  EXPECT_EQ(note_at(broken, 2, "layers.0.k_cache"), "fault:F06");
}
INSTANTIATE_TEST_SUITE_P(Kinds, CacheFaults, testing::Values("concat", "padded"), [](const auto& kind) { return std::string(kind.param); });

TEST(Keep, ChangesNoValueOfARightOrABrokenEngine) {
  TestEngine engine(DType::bf16);
  for (const auto& plan : {three_rows({3, 1, 1}), with_faults(three_rows({3, 1, 1}), {"F01:content=zero"})}) {
    const auto kept = engine.run(with(plan, {.kind = Kind::keep, .tap = "**"}));
    EXPECT_EQ(differing(engine.run(plan), kept), Names{});
    EXPECT_EQ(note_at(kept, 0, "layers.0.q_rope"), "kept");
  }
}

TEST(Exact, ChangesNothingOnARightEngine) {
  for (const auto dtype : {DType::f64, DType::f32, DType::bf16}) {
    TestEngine engine(dtype);
    const auto plan = three_rows({3, 1, 1});
    const auto patched = engine.run(with(plan, {.kind = Kind::exact, .tap = "**"}));
    EXPECT_EQ(differing(engine.run(plan), patched), Names{});
    for (const auto& record : patched.records()) EXPECT_EQ(record.note, "exact") << record.tap;
  }
}

TEST(Exact, MakesABrokenOpRightAndNoOther) {
  TestEngine engine;
  const auto plan = three_rows({3, 1, 1});
  const auto right = engine.run(plan);
  const auto broken = with_faults(plan, {"F01:content=zero", "F06"});
  const auto patched =
      with(with(broken, {.kind = Kind::exact, .tap = "layers.*.?_rope"}), {.kind = Kind::exact, .tap = "layers.*.?_cache"});
  EXPECT_EQ(differing(right, engine.run(patched)), Names{});
  EXPECT_NE(differing(right, engine.run(with(broken, {.kind = Kind::exact, .tap = "layers.*.?_rope"}))), Names{}) << "F06 is left";
  EXPECT_NE(differing(right, engine.run(with(broken, {.kind = Kind::exact, .tap = "layers.*.?_cache"}))), Names{}) << "F01 is left";
  // At one step only: the other keeps its fault.
  const auto once =
      engine.run(with(with_faults(plan, {"F01:content=zero"}), {.kind = Kind::exact, .tap = "layers.*.?_rope", .steps = {1}}));
  EXPECT_EQ(right.find(1, "logits")->hash, once.find(1, "logits")->hash);
  EXPECT_NE(right.find(2, "logits")->hash, once.find(2, "logits")->hash);
}

TEST(Replace, PutsTheTensorThereAndWhatFollowsIsComputedFromIt) {
  TestEngine engine;
  const auto plan = three_rows({3, 1, 1});
  const auto right = engine.run(plan);
  const auto tap = std::string("layers.1.k_cache");
  auto changed = tensor_at(right, 1, tap).copy();
  changed.set({2, 1, 0, 3}, 8);
  const auto file = engine.path("replace.safetensors");
  ASSERT_TRUE(write_safetensors(file, {{tap + "@1", changed}}));
  const auto replaced = engine.run(with(plan, {.kind = Kind::replace, .tap = tap, .steps = {1}, .file = file}));
  EXPECT_EQ(values_at(replaced, 1, tap), changed.values());
  EXPECT_EQ(note_at(replaced, 1, tap), "replaced");
  EXPECT_EQ(tensor_at(replaced, 2, tap).at({2, 1, 0, 3}), 8) << "the cache holds it";
  EXPECT_EQ(note_at(replaced, 2, tap), "");
  EXPECT_EQ(rows_differing(tensor_at(right, 1, "logits"), tensor_at(replaced, 1, "logits")), std::vector<int>{2});
  EXPECT_EQ(right.find(1, "layers.1.q")->hash, replaced.find(1, "layers.1.q")->hash);

  // The key without a step serves every step; what the engine made itself changes nothing.
  const auto own = engine.path("own.safetensors");
  ASSERT_TRUE(write_safetensors(own, {{"embed", tensor_at(right, 1, "embed")}}));
  EXPECT_EQ(differing(right, engine.run(with(plan, {.kind = Kind::replace, .tap = "embed", .steps = {1}, .file = own}))), Names{});
}

TEST(Variant, RunsOneOpAnotherWay) {
  TestEngine engine;
  const auto plan = three_rows({3, 1});
  const auto right = engine.run(plan);
  const auto patched = engine.run(with(plan, {.kind = Kind::variant, .tap = "layers.1.mlp_down", .steps = {1}, .variant = "reversed"}));
  const auto names = differing(right, patched);
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(names.front(), "layers.1.mlp_down@1");
  auto everywhere = plan;
  everywhere.variants["linear"] = "reversed";
  EXPECT_EQ(differing(right, engine.run(everywhere)).front(), "layers.0.q@0");
}

TEST(Plans, ThatCannotBeRunAreRefused) {
  TestEngine engine;
  const auto plan = three_rows({3, 1});
  const auto changed = [&](auto change) {
    auto copy = plan;
    change(copy);
    return engine.error_of(copy);
  };
  const auto intervened = [&](Intervention intervention) { return engine.error_of(with(plan, std::move(intervention))); };
  EXPECT_EQ(engine.error_of(plan), "");
  EXPECT_EQ(changed([](RunPlan& p) { p.variants["linear"] = "magic"; }), "not-supported");
  EXPECT_EQ(changed([](RunPlan& p) { p.variants["linear"] = "quantized"; }), "not-supported");  // no weight is
  EXPECT_EQ(changed([](RunPlan& p) { p.variants["convolution"] = "fused"; }), "plan-invalid");
  EXPECT_EQ(changed([](RunPlan& p) { p.variants = {{"rope.rank", "3"}, {"rope.offset", "per_row"}}; }), "plan-invalid");
  EXPECT_EQ(changed([](RunPlan& p) { p.cache = "ring"; }), "plan-invalid");
  EXPECT_EQ(changed([](RunPlan& p) { p.capture = {"layers.9.q"}; }), "tap-unknown");
  EXPECT_EQ(changed([](RunPlan& p) { p.sequences[1][2] = 97; }), "tokens-invalid");
  EXPECT_EQ(intervened({.kind = Kind::exact, .tap = "layers.0.qq"}), "tap-unknown");
  EXPECT_EQ(intervened({.kind = Kind::variant, .tap = "logits", .variant = "magic"}), "not-supported");
  EXPECT_EQ(intervened({.kind = Kind::variant, .tap = "logits", .variant = "quantized"}), "not-supported");
  EXPECT_EQ(intervened({.kind = Kind::replace, .tap = "logits", .file = engine.path("none")}), "file-missing");
  const auto file = engine.path("odd.safetensors");
  ASSERT_TRUE(write_safetensors(file, {{"embed", Tensor::zeros(DType::f32, {1, 1, 48})}}));
  EXPECT_EQ(intervened({.kind = Kind::replace, .tap = "embed", .file = file}), "plan-invalid");
  EXPECT_EQ(intervened({.kind = Kind::replace, .tap = "logits", .file = file}), "safetensors-invalid");
}

}  // namespace
}  // namespace culprit::ref
