// Law 8: the auditor and the comparer must notice every planted fault, name exactly the spoilt op, and say when data could not have shown
// one.
#include <gtest/gtest.h>

#include <set>

#include "audit/mutations.h"
#include "audit/test_trace.h"
#include "audit/weights.h"
#include "base/test_dir.h"
#include "compare/compare.h"

namespace culprit {
namespace {

using Place = std::pair<int, std::string>;  // step, output

std::set<Place> corrupted(const Model& model, const AuditReport& report) {
  std::set<Place> places;
  for (const auto& op : report.ops)
    if (op.judgement == Judgement::corruption) places.insert({op.step, model.graph().nodes()[static_cast<std::size_t>(op.node)].output});
  return places;
}

bool same_bits(const Tensor& x, const Tensor& y) { return std::ranges::equal(x.contiguous_bytes(), y.contiguous_bytes()); }

// Spoils `output` at `step`; says whether that changed anything.
TestRun spoilt_run(DType dtype, const Mutation& mutation, const std::string& output, int step, bool& effective) {
  auto run = small_run(dtype);
  effective = false;
  run.touch = [=, &mutation, &effective](const Node& node, int at, const Tensor& honest, const Tensor& previous) {
    if (at != step || node.output != output) return honest;
    const auto values = mutation.spoil(honest, previous);
    if (!values) return honest;
    auto spoilt = Tensor::from_values(honest.dtype(), honest.shape(), *values);
    effective = !same_bits(spoilt, honest);
    return spoilt;
  };
  return run;
}

class mutation : public testing::TestWithParam<std::tuple<DType, Facts>> {};

TEST_P(mutation, every_planted_fault_is_corruption_at_its_op_and_at_no_other) {
  const TestDir dir;
  const auto& [dtype, facts] = GetParam();
  const auto model = tiny_model(dir / "model", 1, facts);
  ModelWeights weights(model, dtype);
  const auto honest = write_trace(dir / "honest", model, small_run(dtype));
  const auto clean = must(audit(model, weights, {&honest}));
  EXPECT_TRUE(corrupted(model, clean[0]).empty());
  EXPECT_EQ(clean[0].worst(), Judgement::within);
  for (const auto& op : clean[0].ops) EXPECT_NE(op.judgement, Judgement::not_tested) << op.reason;

  for (const auto& planted : mutations::kAll) {
    std::size_t effective_count = 0;
    for (const auto& node : model.graph().nodes()) {
      bool effective = false;
      const auto trace = write_trace(dir / "spoilt", model, spoilt_run(dtype, planted, node.output, 1, effective));
      effective_count += effective;
      const auto reports = must(audit(model, weights, {&trace}));
      EXPECT_EQ(corrupted(model, reports[0]), (std::set<Place>{{1, node.output}})) << planted.name << " in " << node.output;
    }
    // Every output has two rows and two tokens that differ, so each of them could have shown it.
    EXPECT_EQ(effective_count, model.graph().nodes().size()) << planted.name;
  }
}

INSTANTIATE_TEST_SUITE_P(every_op, mutation,
                         testing::Combine(testing::Values(DType::f32, DType::bf16, DType::f16), testing::ValuesIn(facts_of_every_op())),
                         [](const auto& chosen) {
                           return std::get<1>(chosen.param).architecture + "_" + std::string(name_of(std::get<0>(chosen.param)));
                         });

TEST(mutation_suite, covers_every_op) {
  std::set<Op> covered;
  for (auto facts : facts_of_every_op()) {
    facts.layers = 1;
    const Graph graph(facts);
    for (const auto& node : graph.nodes()) covered.insert(node.op);
  }
  EXPECT_EQ(covered.size(), all_ops().size());
}

TEST(mutation_could_not_show, stale_at_the_first_step_changes_nothing_and_raises_nothing) {
  const TestDir dir;
  const auto model = tiny_model(dir / "model", 1);
  ModelWeights weights(model, DType::f32);
  const auto& stale = *std::ranges::find(mutations::kAll, "stale", &Mutation::name);
  for (const auto& node : model.graph().nodes()) {
    bool effective = true;
    const auto trace = write_trace(dir / "spoilt", model, spoilt_run(DType::f32, stale, node.output, 0, effective));
    EXPECT_FALSE(effective);
    EXPECT_TRUE(corrupted(model, must(audit(model, weights, {&trace}))[0]).empty());
  }
}

TEST(mutation_of_comparer, every_planted_fault_is_a_difference) {
  const TestDir dir;
  const auto model = tiny_model(dir / "model", 1);
  const auto trace = write_trace(dir / "honest", model, small_run(DType::bf16));
  std::size_t effective_count = 0;
  for (const auto& node : model.graph().nodes()) {
    const auto honest = must(trace.tensor(*trace.find(1, node.output)));
    const auto previous = must(trace.tensor(*trace.find(0, node.output)));
    EXPECT_TRUE(must(compare(honest, honest.copy())).equal());
    for (const auto& planted : mutations::kAll) {
      const auto values = planted.spoil(honest, previous);
      ASSERT_TRUE(values);
      const auto spoilt = Tensor::from_values(honest.dtype(), honest.shape(), *values);
      effective_count += !same_bits(spoilt, honest);
      const auto difference = must(compare(honest, spoilt));
      EXPECT_FALSE(difference.equal()) << planted.name << " in " << node.output;
      EXPECT_FALSE(difference.all.error_max <= 0) << planted.name;
      EXPECT_FALSE(difference.relative_l2 <= 0) << planted.name;
      EXPECT_FALSE(difference.worst.empty()) << planted.name;
    }
  }
  EXPECT_EQ(effective_count, model.graph().nodes().size() * std::size(mutations::kAll));
}

// The auditor spoilt as law 1 warns of: `error > bound` lets NaN through. The planted NaN tells the two apart, so the suite above would
// fail with such an auditor.
TEST(mutation_of_auditor, a_bound_that_asks_for_excess_would_miss_nan) {
  const double error = std::numeric_limits<double>::quiet_NaN(), bound = 1;
  EXPECT_FALSE(error > bound);
  EXPECT_TRUE(!(error <= bound));
}

}  // namespace
}  // namespace culprit
