#include "arm/align.h"

#include <gtest/gtest.h>

#include "base/test_dir.h"
#include "engine/plan.h"

namespace culprit {
namespace {

TEST(Align, DraftsAreNoTokensOfTheirSequence) {
  const TestDir dir;
  RunPlan plan;
  plan.sequences = {{1, 2, 3}};
  plan.chunks = {2, 1};
  plan.drafts = {{.step = 0, .tokens = {{7}}}};
  auto writer = TraceWriter::create(dir / "trace", Json{{"plan", to_json(plan)}});
  ASSERT_TRUE(writer);
  const auto step = [&](int number, std::vector<std::int64_t> positions, const std::vector<double>& values) {
    const auto tokens = static_cast<std::int64_t>(values.size());
    writer->add(number, "logits", Tensor::from_values(DType::f32, {1, tokens, 1}, values),
                {.sequence = {0}, .position = {positions}, .slot = {positions}});
    ASSERT_TRUE(writer->end_step());
  };
  step(0, {0, 1, 2}, {10, 11, 92});
  step(1, {2}, {12});
  ASSERT_TRUE(writer->finish(Json::object()));
  const auto trace = *Trace::open(dir / "trace");
  EXPECT_EQ(drafted_tokens(trace), (std::map<int, std::size_t>{{0, 1}}));
  const auto found = places(trace, "logits");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(*values_at(trace, found.at({0, 2})), std::vector<double>{12});
}

TEST(Align, TokensOfASequenceWhosePrefixIsReusedAreNoneOfTheRow) {
  const TestDir dir;
  RunPlan plan;
  plan.sequences = {{1, 2, 3}};
  plan.chunks = {2};
  plan.reuse = Reuse{.common = 1, .tokens = {{7, 8}}, .chunks = {2, 1}};
  auto writer = TraceWriter::create(dir / "trace", Json{{"plan", to_json(plan)}});
  ASSERT_TRUE(writer);
  const auto step = [&](int number, std::vector<std::int64_t> positions, const std::vector<double>& values) {
    writer->add(number, "logits", Tensor::from_values(DType::f32, {1, std::ssize(values), 1}, values),
                {.sequence = {0}, .position = {positions}, .slot = {positions}});
    ASSERT_TRUE(writer->end_step());
  };
  step(0, {0, 1}, {10, 97});
  step(1, {2}, {98});
  step(2, {1, 2}, {11, 12});
  ASSERT_TRUE(writer->finish(Json::object()));
  const auto trace = *Trace::open(dir / "trace");
  EXPECT_EQ(drafted_tokens(trace), (std::map<int, std::size_t>{{0, 1}, {1, 2}}));
  const auto found = places(trace, "logits");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(*values_at(trace, found.at({0, 0})), std::vector<double>{10});
  EXPECT_EQ(*values_at(trace, found.at({0, 1})), std::vector<double>{11});
  EXPECT_EQ(*values_at(trace, found.at({0, 2})), std::vector<double>{12});
}

TEST(Align, ATraceWithoutAPlanHasNoDrafts) {
  const TestDir dir;
  for (const auto& header : {Json::object(), Json{{"plan", "none"}}, Json{{"plan", {{"drafts", 3}}}}}) {
    auto writer = TraceWriter::create(dir / std::to_string(header.dump().size()), header);
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->finish(Json::object()));
    EXPECT_TRUE(drafted_tokens(*Trace::open(dir / std::to_string(header.dump().size()))).empty());
  }
}

}  // namespace
}  // namespace culprit
