// The auditor on ops with a recurrent state, and on a choice of experts that rounding decides.
#include <gtest/gtest.h>

#include <cmath>

#include "audit/audit.h"
#include "audit/bounded.h"
#include "audit/judge.h"
#include "audit/test_trace.h"
#include "audit/weights.h"
#include "base/test_dir.h"

namespace culprit {
namespace {

class Recurrent : public testing::TestWithParam<DType> {
 protected:
  /// Outputs that are corrupt, as "TAP@STEP", of a run whose ops are given another state.
  std::vector<std::string> corrupt(const std::function<void(const Node&, NodeContext&)>& mislead,
                                   const std::function<bool(int, const std::string&)>& records = {}) {
    auto run = small_run(GetParam());
    run.plan.chunks = {1, 2, 1};
    run.engine = [&](const Node& node, const std::vector<Array>& inputs, NodeContext context) {
      if (has_state(node.op) && mislead) mislead(node, context);
      return to_tensor(must(evaluate_node(node, inputs, context)), output_dtype(node, GetParam()));
    };
    run.records = records;
    const auto trace = write_trace(dir_ / "trace", model_, run);
    ModelWeights weights(model_, GetParam());
    report_ = must(audit(model_, weights, {&trace}))[0];
    std::vector<std::string> found;
    for (const auto& op : report_.ops)
      if (op.judgement == Judgement::corruption)
        found.push_back(model_.graph().nodes()[static_cast<std::size_t>(op.node)].output + "@" + std::to_string(op.step));
    return found;
  }
  TestDir dir_;
  Model model_ = tiny_model(dir_ / "model", 1, find_architecture("qwen3_5_moe")->tiny());
  AuditReport report_;
};

using Names = std::vector<std::string>;

TEST_P(Recurrent, AStateThatIsRightRaisesNothing) {
  EXPECT_EQ(corrupt({}), Names{});
  for (const auto& op : report_.ops) EXPECT_EQ(op.judgement, Judgement::within) << op.reason;
}

TEST_P(Recurrent, AStateThatIsLostIsTheOpsDoing) {
  EXPECT_EQ(corrupt([](const Node& node, NodeContext& context) {
              if (node.op == Op::delta_state) context.cache = {};
            }),
            (Names{"layers.0.delta_state@1", "layers.0.delta_state@2"}));
  EXPECT_EQ(corrupt([](const Node& node, NodeContext& context) {
              if (node.op == Op::causal_conv) context.cache = {};
            }),
            (Names{"layers.0.delta_conv@1", "layers.0.delta_conv@2"}));
}

TEST_P(Recurrent, AStateOfAnotherRowIsTheOpsDoing) {
  const auto turned = [](const Tensor& state) {
    auto values = state.values();
    std::ranges::rotate(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 3));
    return Tensor::from_values(state.dtype(), state.shape(), values);
  };
  for (const auto op : {Op::delta_state, Op::causal_conv}) {
    const std::string tap = op == Op::delta_state ? "layers.0.delta_state" : "layers.0.delta_conv";
    EXPECT_EQ(corrupt([&](const Node& node, NodeContext& context) {
                if (node.op == op && context.cache.rank() > 0) context.cache = turned(context.cache);
              }),
              (Names{tap + "@1", tap + "@2"}));
  }
}

TEST_P(Recurrent, WhatWasNotRecordedIsNotTested) {
  EXPECT_EQ(corrupt({}, [](int step, const std::string& tap) { return step != 0 || !tap.ends_with("delta_state"); }), Names{});
  for (const auto& op : report_.ops)
    if (op.step == 1 && model_.graph().nodes()[static_cast<std::size_t>(op.node)].op == Op::delta_state) {
      EXPECT_EQ(op.judgement, Judgement::not_tested);
      EXPECT_NE(op.reason.find("went on from"), std::string::npos);
    }
}

INSTANTIATE_TEST_SUITE_P(EveryDtype, Recurrent, testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                         [](const auto& chosen) { return std::string(name_of(chosen.param)); });

Judgement judged_route(const std::vector<double>& scores, const std::vector<double>& actual, DType dtype = DType::bf16) {
  const Facts facts = tiny_llama_facts();
  NodeContext context;
  context.facts = &facts;
  context.dtype = dtype;
  const Node node{.op = Op::route, .output = "route", .inputs = {"router"}, .weight = {}, .experts = 2, .normalised = true};
  const Array x{{1, 1, static_cast<std::int64_t>(scores.size())}, scores};
  const auto tensor = Tensor::from_values(dtype, x.shape, actual);
  const auto seen = to_array(tensor);
  OpAudit audit;
  judge(must(bounded_node(node, {x}, context, dtype, {}, {}, &seen)), tensor, audit);
  return audit.judgement;
}

TEST(Route, OfNearlyEqualSharesEitherMayBeChosen) {
  // Experts 1 and 2 are a rounding of bf16 apart; 0 is sure, 3 is out.
  const std::vector<double> scores = {2, 1, 1 + 0x1p-9, 0};
  const double sure = std::exp(2), near = std::exp(1);
  const double first = sure / (sure + near), second = near / (sure + near);
  EXPECT_EQ(judged_route(scores, {first, 0, second, 0}), Judgement::within);
  EXPECT_EQ(judged_route(scores, {first, second, 0, 0}), Judgement::within);
  EXPECT_EQ(judged_route(scores, {first, second, second, 0}), Judgement::corruption);  // one too many
  EXPECT_EQ(judged_route(scores, {first, 0, 0, second}), Judgement::corruption);       // not the next
  EXPECT_EQ(judged_route(scores, {0, first, second, 0}), Judgement::corruption);       // not the largest
  EXPECT_EQ(judged_route(scores, {first, 0, 0, 0}), Judgement::corruption);            // one too few
  EXPECT_EQ(judged_route(scores, {1, 0, 0, 0}), Judgement::corruption);
  // In f32 they are far apart.
  EXPECT_EQ(judged_route({2, 1, 1 + 0x1p-9, 0}, {first, second, 0, 0}, DType::f32), Judgement::corruption);
}

}  // namespace
}  // namespace culprit
