#include "audit/audit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "audit/bounded.h"
#include "audit/f32_engine.h"
#include "audit/judge.h"
#include "audit/ops/linear.h"
#include "audit/weights.h"
#include "base/test_dir.h"

namespace culprit {
namespace {

Json hello_with_linear(const std::string& accumulate) {
  return Json::parse(R"({"ops": {"linear": {"variants": ["dense"], "arithmetic": {"dense": {"accumulate": ")" + accumulate + R"("}}}}})");
}

const OpAudit& entry(const Model& model, const AuditReport& report, int step, const std::string& output) {
  for (const auto& op : report.ops)
    if (op.step == step && op.node == model.graph().index_of(output)) return op;
  throw std::runtime_error("no entry for " + output);
}

// Law 5: other orders of summation, split and fused forms, in every dtype.
TEST(audit, legal_arithmetic_raises_nothing) {
  const TestDir dir;
  std::vector<Model> models;
  for (const auto& facts : facts_of_every_op()) models.push_back(tiny_model(dir / facts.architecture, 2, facts));
  for (const auto& model : models)
    for (const auto dtype : {DType::f32, DType::bf16, DType::f16}) {
      ModelWeights weights(model, dtype);
      std::vector<Trace> traces;
      for (const auto order : {Order::forward, Order::backward, Order::pairwise})
        for (const bool split : {false, true}) {
          auto run = small_run(dtype);
          run.engine = F32Engine(dtype, order, split);
          traces.push_back(write_trace(dir / std::to_string(traces.size()), model, run));
        }
      std::vector<const Trace*> all;
      for (const auto& trace : traces) all.push_back(&trace);
      const auto reports = must(audit(model, weights, all));
      for (const auto& report : reports)
        for (const auto& op : report.ops) {
          const auto& output = model.graph().nodes()[static_cast<std::size_t>(op.node)].output;
          EXPECT_EQ(op.judgement, Judgement::within)
              << model.facts().architecture << " " << name_of(dtype) << " " << output << ": " << op.ratio_max;
          EXPECT_LE(op.ratio_max, 1);
          EXPECT_LT(op.vacuous * 8, op.count) << name_of(dtype) << " " << output;
        }
    }
}

// Layers of two head widths, shared caches and an input for each layer: what is legal raises nothing, and an index that is off by one is
// found at the node that misuses it.
class AuditOfSharedLayers : public testing::Test {
 protected:
  using Inputs = std::vector<Array>;
  /// The places whose ops are corrupt when `hand` changes what the node at `output` gets at step 1.
  std::vector<std::string> corrupt(const std::string& output, const std::function<void(Node&, Inputs&)>& hand) {
    auto run = small_run(DType::bf16);
    run.engine = [&](const Node& node, const Inputs& inputs, const NodeContext& context) {
      auto altered = node;
      auto given = inputs;
      if (node.output == output && context.at.position[0][0] > 257) hand(altered, given);
      return to_tensor(must(evaluate_node(altered, given, context)), DType::bf16);
    };
    const auto trace = write_trace(dir_ / "trace", model_, run);
    ModelWeights weights(model_, DType::bf16);
    const auto report = must(audit(model_, weights, {&trace}))[0];
    std::vector<std::string> places;
    for (const auto& op : report.ops)
      if (op.judgement == Judgement::corruption) places.push_back(model_.graph().nodes()[static_cast<std::size_t>(op.node)].output);
    return places;
  }
  TestDir dir_;
  Model model_ = tiny_model(dir_ / "model", 6, find_architecture("gemma4")->tiny());
};

TEST_F(AuditOfSharedLayers, RaisesNothingOnLegalArithmetic) {
  for (const auto dtype : {DType::f32, DType::bf16, DType::f16})
    for (const auto order : {Order::forward, Order::pairwise}) {
      auto run = small_run(dtype);
      run.engine = F32Engine(dtype, order, order == Order::forward);
      const auto trace = write_trace(dir_ / "trace", model_, run);
      ModelWeights weights(model_, dtype);
      const auto report = must(audit(model_, weights, {&trace}))[0];
      EXPECT_EQ(report.ops.size(), 2 * model_.graph().nodes().size());
      for (const auto& op : report.ops)
        EXPECT_EQ(op.judgement, Judgement::within)
            << name_of(dtype) << " " << model_.graph().nodes()[static_cast<std::size_t>(op.node)].output << ": " << op.ratio_max;
    }
}

TEST_F(AuditOfSharedLayers, NamesTheNodeThatTakesAnother) {
  using Places = std::vector<std::string>;
  EXPECT_EQ(corrupt("", [](Node&, Inputs&) {}), Places{});
  EXPECT_EQ(corrupt("layers.2.per_layer_input", [](Node& node, Inputs&) { node.head = 3; }), Places{"layers.2.per_layer_input"});
  EXPECT_EQ(corrupt("layers.4.attn", [](Node& node, Inputs&) { node.window = 2; }), Places{"layers.4.attn"});
  // A shared layer whose keys and values lag a token behind, as from a cache of its own that was not written.
  const auto stale = [](Node&, Inputs& inputs) {
    for (std::size_t i = 1; i < 3; ++i) std::ranges::rotate(inputs[i].values, inputs[i].values.begin() + inputs[i].shape[3]);
  };
  EXPECT_EQ(corrupt("layers.5.attn", stale), Places{"layers.5.attn"});
}

// A pair that stands still is moved by no arithmetic, however little.
TEST_F(AuditOfSharedLayers, AStillPairIsExact) {
  auto run = small_run(DType::f32);
  run.touch = [](const Node& node, int step, const Tensor& result, const Tensor&) {
    if (node.output != "layers.5.q_rope" || step != 1) return result;
    auto touched = result.copy();
    touched.set({1, 2, 0, 11}, result.at({1, 2, 0, 11}) * (1 + 0x1p-22));
    return touched;
  };
  const auto trace = write_trace(dir_ / "trace", model_, run);
  ModelWeights weights(model_, DType::f32);
  const auto report = must(audit(model_, weights, {&trace}))[0];
  EXPECT_EQ(entry(model_, report, 1, "layers.5.q_rope").over, 1);
  EXPECT_EQ(entry(model_, report, 1, "layers.5.q_rope").worst, (std::vector<std::int64_t>{1, 2, 0, 11}));
}

TEST(audit, float64_is_bounded_as_float64) {
  const TestDir dir;
  const auto model = tiny_model(dir / "model");
  ModelWeights weights(model, DType::f64);
  auto run = small_run(DType::f64);
  const auto clean = write_trace(dir / "clean", model, run);
  run.touch = [](const Node& node, int step, const Tensor& result, const Tensor&) {
    if (node.output != "layers.1.q_rope" || step != 1) return result;
    auto values = result.values();
    for (auto& value : values) value *= 1 + 1e-12;  // far less than f32 shows
    return Tensor::from_values(DType::f64, result.shape(), values);
  };
  const auto touched = write_trace(dir / "touched", model, run);
  const auto reports = must(audit(model, weights, {&clean, &touched}));
  EXPECT_EQ(reports[0].worst(), Judgement::within);
  EXPECT_EQ(entry(model, reports[1], 1, "layers.1.q_rope").judgement, Judgement::corruption);
}

TEST(audit, accumulation_in_the_dtype_is_precision_declared_or_not) {
  const TestDir dir;
  const auto model = tiny_model(dir / "model", 1);
  for (const auto dtype : {DType::bf16, DType::f16})
    for (const auto order : {Order::forward, Order::backward, Order::pairwise}) {
      auto run = small_run(dtype);
      run.engine = F32Engine(dtype, order, true, true);
      ModelWeights weights(model, dtype);
      run.hello = hello_with_linear("dtype");
      const auto declared = write_trace(dir / "declared", model, run);
      run.hello = hello_with_linear("f32");
      const auto undeclared = write_trace(dir / "undeclared", model, run);
      const auto reports = must(audit(model, weights, {&declared, &undeclared}));
      EXPECT_EQ(reports[0].worst(), Judgement::precision) << name_of(dtype);
      EXPECT_EQ(reports[1].worst(), Judgement::precision) << name_of(dtype);
      EXPECT_EQ(entry(model, reports[1], 1, "layers.0.mlp_down").reason,
                "accumulates in " + std::string(name_of(dtype)) + ", which is less than the declared f32");
      const auto& down = entry(model, reports[0], 1, "layers.0.mlp_down");
      EXPECT_EQ(down.judgement, Judgement::precision);
      EXPECT_GT(down.standard_ratio_max, 1);
      EXPECT_LE(down.ratio_max, 1);
      EXPECT_FALSE(down.assumed);
      EXPECT_EQ(down.variant, "dense");
      EXPECT_FALSE(down.reason.empty());
    }
}

// A term that every sum leaves out is a smaller error than accumulation in bf16 may make in one element, but not in all of them.
TEST(audit, a_lost_term_is_no_lower_precision) {
  const TestDir dir;
  const auto model = tiny_model(dir / "model", 1);
  ModelWeights weights(model, DType::bf16);
  auto run = small_run(DType::bf16);
  run.engine = [](const Node& node, const std::vector<Array>& inputs, const NodeContext& context) {
    auto given = inputs;
    if (node.output == "layers.0.mlp_down")
      for (std::size_t i = 79; i < given[0].values.size(); i += 80) given[0].values[i] = 0;
    return to_tensor(must(evaluate_node(node, given, context)), DType::bf16);
  };
  const auto trace = write_trace(dir / "trace", model, run);
  const auto report = must(audit(model, weights, {&trace}))[0];
  EXPECT_EQ(entry(model, report, 1, "layers.0.mlp_down").judgement, Judgement::corruption);
}

// The declared bound at the widths of a real model: never exceeded, and far from vacuous.
TEST(audit, accumulation_in_the_dtype_is_bounded_at_real_widths) {
  std::mt19937 engine(5);
  const auto random = [&] { return static_cast<double>(engine()) / 0x1p31 - 1; };
  constexpr std::int64_t kOut = 64, kTokens = 9;
  for (const auto& [dtype, in] : {std::pair<DType, std::int64_t>{DType::bf16, 576}, {DType::f16, 1536}}) {
    std::vector<double> x(static_cast<std::size_t>(in * kTokens)), w(static_cast<std::size_t>(in * kOut));
    for (auto& value : x) value = round_to(dtype, random());
    for (auto& value : w) value = round_to(dtype, random() / 16);
    const auto weight = Tensor::from_values(dtype, {kOut, in}, w);
    const auto bounds = bounded_linear(x, kTokens, weight, {}, {}, dtype, {.accumulate = DType::f32, .in_dtype = true, .declared = true});
    ASSERT_EQ(bounds.standard.size(), bounds.bound.size());
    double ratio = 0, squares = 0, mean_bound = 0;
    for (std::int64_t token = 0; token < kTokens; ++token)
      for (std::int64_t j = 0; j < kOut; ++j) {
        const auto place = static_cast<std::size_t>(token * kOut + j);
        std::vector<float> terms;
        for (std::int64_t i = 0; i < in; ++i)
          terms.push_back(
              static_cast<float>(round_to(dtype, x[static_cast<std::size_t>(token * in + i)] * w[static_cast<std::size_t>(j * in + i)])));
        for (const auto order : {Order::forward, Order::backward, Order::pairwise})
          ratio = std::max(ratio, std::abs(ordered_sum(terms, order, dtype) - bounds.value[place]) / bounds.bound[place]);
        squares += bounds.value[place] * bounds.value[place];
        mean_bound += bounds.bound[place] / (kTokens * kOut);
      }
    EXPECT_LT(ratio, 1);
    EXPECT_GT(ratio, 0.1);
    EXPECT_LT(mean_bound, std::sqrt(squares / (kTokens * kOut))) << name_of(dtype);
    RecordProperty(std::string("ratio_max_") + std::string(name_of(dtype)), std::to_string(ratio));
  }
}

TEST(audit, what_was_not_recorded_is_not_tested_and_says_why) {
  const TestDir dir;
  const auto model = tiny_model(dir / "model", 1);
  ModelWeights weights(model, DType::f32);
  auto run = small_run(DType::f32);
  run.records = [](int step, const std::string& tap) { return tap != "layers.0.k_rope" || step != 0; };
  const auto trace = write_trace(dir / "trace", model, run);
  const auto reports = must(audit(model, weights, {&trace}));
  const auto& rope = entry(model, reports[0], 0, "layers.0.k_rope");
  EXPECT_EQ(rope.judgement, Judgement::not_tested);
  EXPECT_EQ(rope.reason, "its output was not recorded");
  EXPECT_EQ(entry(model, reports[0], 0, "layers.0.k_cache").judgement, Judgement::not_tested);
  const auto& cache = entry(model, reports[0], 1, "layers.0.k_cache");  // half of its slots have a source
  EXPECT_EQ(cache.judgement, Judgement::within);
  EXPECT_EQ(cache.count, 3 * 3 * 2 * 8);
  EXPECT_EQ(cache.reason, "6 live slots were not tested: what was written to them was not recorded");
  EXPECT_EQ(AuditReport{}.worst(), Judgement::not_tested);
}

TEST(audit, reprefill_and_equal_sequences_fit_their_caches) {
  const TestDir dir;
  const auto model = tiny_model(dir / "model", 1);
  ModelWeights weights(model, DType::bf16);
  auto run = small_run(DType::bf16);
  run.plan.reprefill = true;
  run.plan.sequences[1] = run.plan.sequences[0];
  run.plan.sequence_ids = {4, 4, 9};
  const auto clean = write_trace(dir / "clean", model, run);
  // Row 1 receives row 2's cache: only a cache that is told apart by row shows it.
  run.touch = [](const Node& node, int, const Tensor& result, const Tensor&) {
    if (node.output != "layers.0.v_cache") return result;
    auto spoilt = result.copy();
    for (std::int64_t head = 0; head < 3; ++head) spoilt.set({1, head, 0, 0}, result.at({2, head, 0, 0}));
    return spoilt;
  };
  const auto spoilt = write_trace(dir / "spoilt", model, run);
  const auto reports = must(audit(model, weights, {&clean, &spoilt}));
  EXPECT_EQ(reports[0].worst(), Judgement::within);
  const auto& cache = entry(model, reports[1], 1, "layers.0.v_cache");
  EXPECT_EQ(cache.judgement, Judgement::corruption);
  EXPECT_EQ(cache.over, 3);
  for (const auto& cell : cache.cells) EXPECT_EQ(cell.over, cell.row == 1 && cell.token == 0 ? 1 : 0);
}

TEST(audit, cells_name_row_head_and_token) {
  const TestDir dir;
  const auto model = tiny_model(dir / "model", 1);
  ModelWeights weights(model, DType::f32);
  auto run = small_run(DType::f32);
  run.touch = [](const Node& node, int step, const Tensor& result, const Tensor&) {
    if (node.output != "layers.0.q_rope" || step != 1) return result;
    auto spoilt = result.copy();
    spoilt.set({2, 4, 1, 7}, 9);
    return spoilt;
  };
  const auto trace = write_trace(dir / "trace", model, run);
  const auto report = must(audit(model, weights, {&trace}))[0];
  const auto& rope = entry(model, report, 1, "layers.0.q_rope");
  EXPECT_EQ(rope.over, 1);
  EXPECT_EQ(rope.worst, (std::vector<std::int64_t>{2, 4, 1, 7}));
  EXPECT_EQ(rope.actual, 9);
  EXPECT_EQ(rope.cells.size(), 3U * 6 * 2);
  for (const auto& cell : rope.cells) EXPECT_EQ(cell.over, cell.row == 2 && cell.head == 4 && cell.token == 1 ? 1 : 0);
}

Bounded bounded_swiglu(DType dtype, const std::vector<double>& gate, const std::vector<double>& up, Arithmetic arithmetic = {}) {
  const Shape shape = {1, 1, static_cast<std::int64_t>(gate.size())};
  const Facts facts;
  NodeContext context;
  context.facts = &facts;
  Node node;
  node.op = Op::swiglu;
  return must(bounded_node(node, {Array{shape, gate}, Array{shape, up}}, context, dtype, arithmetic));
}

TEST(audit, a_sigmoid_with_every_step_rounded_is_precision_for_every_gate) {
  for (const auto dtype : {DType::f16, DType::bf16}) {
    const auto step = [&](double x) { return round_to(dtype, x); };
    std::vector<double> gate, up, values;
    std::mt19937 engine(5);
    for (std::uint16_t bits = 0; bits < 0xffff; ++bits) {
      const double g = load(dtype, reinterpret_cast<const std::byte*>(&bits));
      if (!std::isfinite(g) || g < -11) continue;  // beyond, exp(-g) overflows f16: the next test
      const double y = step(1 / step(1 + step(std::exp(std::abs(g)))));
      gate.push_back(g);
      up.push_back(step(static_cast<double>(engine()) / 0x1p32 - 0.5));
      values.push_back(step(step(g * (g < 0 ? y : step(1 - y))) * up.back()));
    }
    const Arithmetic in_dtype{.in_dtype = true, .declared = true};
    const auto declared = bounded_swiglu(dtype, gate, up, in_dtype), standard = bounded_swiglu(dtype, gate, up);
    const auto actual = Tensor::from_values(dtype, {1, 1, static_cast<std::int64_t>(gate.size())}, values);
    OpAudit honest, undeclared;
    judge(declared, actual, honest);
    judge(standard, actual, undeclared);
    EXPECT_EQ(honest.judgement, Judgement::precision) << honest.ratio_max;
    EXPECT_GT(honest.ratio_max, 0.5) << "the bound is tight";
    EXPECT_EQ(undeclared.judgement, Judgement::corruption) << "three roundings do not cover six";
  }
}

TEST(audit, a_sigmoid_that_vanishes_is_precision_and_only_where_exp_overflows) {
  const std::vector<double> gate = {-11.09375, -11.0859375, -12, 1}, up = {100, 100, -100, 1};
  const auto expected = bounded_swiglu(DType::f16, gate, up);
  auto values = expected.value.values;
  const auto judged = [&] {
    OpAudit audit;
    judge(expected, Tensor::from_values(DType::f16, {1, 1, 4}, values), audit);
    return audit;
  };
  EXPECT_EQ(judged().judgement, Judgement::within);
  values[0] = 0;
  values[2] = -0.0;
  const auto vanished = judged();
  EXPECT_EQ(vanished.judgement, Judgement::precision);
  EXPECT_EQ(vanished.precision, 2);
  EXPECT_EQ(vanished.reason, "sigmoid underflows to 0 in f16 where exp(-x) overflows, or sigmoid is subnormal (x < -11.09)");
  values[1] = 0;  // exp(11.0859375) is 65226: a finite f16
  EXPECT_EQ(judged().judgement, Judgement::corruption);
}

// exp(88.1) is a finite f32, but 1 / (1 + exp(88.1)) is subnormal: MLX 0.32.4 on CPU has exp(88.1) = infinity and sigmoid(-88.1) = 0.
TEST(audit, a_subnormal_sigmoid_may_be_flushed_to_zero_and_a_normal_one_not) {
  const std::vector<double> gate = {-88.1, -87.5, -87.3, 1}, up = {1e4, 1e4, 1e4, 1};
  for (const auto dtype : {DType::f32, DType::bf16}) {
    const auto expected = bounded_swiglu(dtype, gate, up);
    auto values = expected.value.values;
    const auto judged = [&] {
      OpAudit audit;
      judge(expected, Tensor::from_values(dtype, {1, 1, 4}, values), audit);
      return audit.judgement;
    };
    values[0] = values[1] = 0;
    EXPECT_EQ(judged(), Judgement::precision) << name_of(dtype);
    values[2] = 0;
    EXPECT_EQ(judged(), Judgement::corruption) << name_of(dtype);
  }
}

TEST(audit, infinities_are_legal_only_beyond_the_dtype) {
  Node node;
  node.op = Op::add;
  const Facts facts;
  NodeContext context;
  context.facts = &facts;
  const Shape shape = {1, 1, 3};
  const auto expected =
      must(bounded_node(node, {Array{shape, {65504, 1, -65504}}, Array{shape, {65504, 1, -17}}}, context, DType::f16, {}));
  const double inf = HUGE_VAL;
  const auto over = [&](std::vector<double> values) {
    OpAudit audit;
    judge(expected, Tensor::from_values(DType::f16, shape, values), audit);
    return audit.over;
  };
  EXPECT_EQ(over({inf, 2, -inf}), 0);
  EXPECT_EQ(over({-inf, 2, -65504}), 1);  // the sign is wrong
  EXPECT_EQ(over({inf, inf, -inf}), 1);
  EXPECT_EQ(over({65504, 2, -inf}), 1);  // saturation is not rounding
}

TEST(audit, one_outlier_in_a_million_is_found) {
  constexpr std::int64_t kCount = 1 << 20;
  const Shape shape = {1, 1024, 1024};
  std::mt19937 engine(11);
  Array x{shape, std::vector<double>(kCount)}, y = x;
  for (auto& value : x.values) value = round_to(DType::bf16, static_cast<double>(engine()) / 0x1p32);
  for (auto& value : y.values) value = round_to(DType::bf16, static_cast<double>(engine()) / 0x1p32);
  Node node;
  node.op = Op::add;
  const Facts facts;
  NodeContext context;
  context.facts = &facts;
  const auto expected = must(bounded_node(node, {x, y}, context, DType::bf16, {}));
  auto values = expected.value.values;
  OpAudit honest, spoilt;
  judge(expected, Tensor::from_values(DType::bf16, shape, values), honest);
  EXPECT_EQ(honest.judgement, Judgement::within);
  EXPECT_GT(honest.rounding_ratio_max, 0.9);  // the bound is tight
  values[777'777] *= 1 + 0x1p-6;
  judge(expected, Tensor::from_values(DType::bf16, shape, values), spoilt);
  EXPECT_EQ(spoilt.over, 1);
  EXPECT_EQ(spoilt.worst, (std::vector<std::int64_t>{0, 777'777 / 1024, 777'777 % 1024}));
}

}  // namespace
}  // namespace culprit
