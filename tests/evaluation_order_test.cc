// Results that depend on when an engine evaluates: `find` names the place and what bounds it in time, repeats what it saw, and calls it a fact.
// What does not repeat, and what is right, is not taken for it.
#include "locate/evaluation_order.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/test_dir.h"
#include "decode/model.h"
#include "locate/find.h"
#include "report/text.h"

namespace culprit {
namespace {

class EvaluationOrder : public testing::Test {
 protected:
  Verdict find_on(const std::string& how) {
    EXPECT_TRUE(write_random_model(dir_ / "model", {.facts = tiny_llama_facts(), .seed = 1}));
    FindOptions options;
    options.engine.name = "ref";
    options.engine.argv = {CULPRIT_ORDER_ENGINE, how};
    options.model = dir_ / "model";
    options.model_name = "tiny";
    options.work = dir_ / "work";
    auto verdict = find(options);
    if (!verdict) {
      ADD_FAILURE() << to_string(verdict.error());
      return {};
    }
    return *std::move(verdict);
  }
  static const OrderFinding* order(const Verdict& verdict, const std::string& name) {
    const auto found = std::ranges::find(verdict.orders, name, &OrderFinding::order);
    return found == verdict.orders.end() ? nullptr : &*found;
  }

  TestDir dir_;
};

TEST_F(EvaluationOrder, OfAnEngineThatIsRightChangesNothing) {
  const auto verdict = find_on("right");
  EXPECT_EQ(verdict.status, Status::no_divergence) << to_text(verdict);
  EXPECT_TRUE(verdict.orders.empty()) << to_text(verdict);
}

TEST_F(EvaluationOrder, ThatChangesARoundingIsAFactBesideNoDivergence) {
  const auto verdict = find_on("other-rounding");
  EXPECT_EQ(verdict.status, Status::no_divergence) << to_text(verdict);
  ASSERT_EQ(verdict.orders.size(), 2u) << to_text(verdict);
  for (const auto* name : {"each_op", "async"}) {
    const auto* found = order(verdict, name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_TRUE(found->repeatable);
    EXPECT_TRUE(found->audited);
    EXPECT_EQ(found->first_difference, "layers.1.attn_norm@0");
    EXPECT_EQ(found->place, "layers.1.attn_norm");
    EXPECT_EQ(found->until, "layers.1.q");
    EXPECT_EQ(found->together_from, "");
    EXPECT_EQ(found->steps, (std::vector<int>{0, 1, 2}));
  }
  EXPECT_EQ(
      to_text(verdict.orders[0]),
      "result depends on evaluation order (each_op against lazy): evaluating layers.1.attn_norm before layers.1.q changes it, at step 0 "
      "or 1 or 2 alone; layers.1.attn_norm@0 differs first; repeatable: 3 of 3 runs of the one, 3 of 3 of the other; this does not "
      "prove a race");
  EXPECT_NE(to_text(verdict).find("result depends on evaluation order (each_op against lazy)"), std::string::npos);
  const auto json = to_json(verdict).at("evaluation_order");
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0].at("place"), "layers.1.attn_norm");
  EXPECT_EQ(json[0].at("until"), "layers.1.q");
  EXPECT_EQ(json[0].at("repeatable"), true);
  for (const int run : verdict.orders[0].entries) EXPECT_TRUE(verdict.ledger.entry(run)) << run;
}

TEST_F(EvaluationOrder, MayTakeTwoPlacesTogether) {
  const auto verdict = find_on("needs-two");
  const auto* found = order(verdict, "each_op");
  ASSERT_NE(found, nullptr) << to_text(verdict);
  EXPECT_EQ(found->place, "layers.1.attn_norm");
  EXPECT_EQ(found->together_from, "layers.0.attn");
  EXPECT_NE(to_text(*found).find("evaluating layers.1.attn_norm changes it when layers.0.attn and those between were too"),
            std::string::npos)
      << to_text(*found);
}

TEST_F(EvaluationOrder, ThatReadsStaleMemoryIsADefectOfTheOpAndAFact) {
  const auto verdict = find_on("stale");
  EXPECT_EQ(verdict.status, Status::localised) << to_text(verdict);
  ASSERT_EQ(verdict.defects.size(), 1u) << to_text(verdict);
  EXPECT_EQ(verdict.defects[0].op, "rms_norm");
  EXPECT_EQ(verdict.defects[0].taps, (std::vector<std::string>{"attn_norm"}));
  // Touching the output is enough to cure it, so that it is gone with the op made right proves nothing.
  EXPECT_FALSE(verdict.defects[0].sufficient);
  EXPECT_TRUE(std::ranges::any_of(verdict.defects[0].evidence, [](const Claim& claim) {
    return claim.text.starts_with("control:") && claim.text.find("does not show that the op is wrong") != std::string::npos;
  })) << to_text(verdict);
  const auto* found = order(verdict, "each_op");
  ASSERT_NE(found, nullptr) << to_text(verdict);
  EXPECT_EQ(found->place, "layers.1.attn_norm");
  EXPECT_EQ(found->until, "layers.1.q");
}

TEST_F(EvaluationOrder, IsNotBlamedForWhatDoesNotRepeat) {
  const auto verdict = find_on("not-repeatable");
  EXPECT_EQ(verdict.status, Status::no_divergence) << to_text(verdict);
  ASSERT_EQ(verdict.orders.size(), 1u) << to_text(verdict);
  EXPECT_FALSE(verdict.orders[0].repeatable);
  EXPECT_EQ(verdict.orders[0].place, "");
  EXPECT_LT(verdict.orders[0].base_equal + verdict.orders[0].other_equal, 2 * verdict.orders[0].runs);
  EXPECT_TRUE(to_text(verdict.orders[0]).starts_with("results are not repeatable (")) << to_text(verdict.orders[0]);
}

TEST_F(EvaluationOrder, IsAlsoTriedWithoutTheRecordingThatKeepsMemoryAlive) {
  const auto verdict = find_on("reuses-memory");
  EXPECT_EQ(verdict.status, Status::inconclusive) << to_text(verdict);
  EXPECT_EQ(verdict.exit_code(), 3);
  const auto* recording = order(verdict, "recording");
  ASSERT_NE(recording, nullptr) << to_text(verdict);
  EXPECT_FALSE(recording->audited);
  EXPECT_EQ(recording->place, "layers.1.attn_norm") << "recording it keeps its memory from being used again";
  const auto* evaluation = order(verdict, "each_op, only logits recorded");
  ASSERT_NE(evaluation, nullptr) << to_text(verdict);
  EXPECT_EQ(evaluation->place, "layers.1.attn_norm");
  EXPECT_EQ(order(verdict, "each_op"), nullptr);
}

}  // namespace
}  // namespace culprit
