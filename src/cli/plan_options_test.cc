#include "cli/plan_options.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/test_dir.h"

namespace culprit::cli {
namespace {

TEST(PlanOptions, TokensAreAListOrAFile) {
  EXPECT_EQ(parse_tokens("1,2, 3").value(), (std::vector<int>{1, 2, 3}));
  const TestDir dir;
  const auto file = dir.path() / "ids";
  ASSERT_TRUE(write_file_whole(file, std::string_view("7 8\n9,10\n")));
  EXPECT_EQ(parse_tokens(file.string()).value(), (std::vector<int>{7, 8, 9, 10}));
  ASSERT_TRUE(write_file_whole(file, std::string_view("7 8.5")));
  const auto broken = parse_tokens(file.string());
  EXPECT_EQ(broken.error().id, "tokens-invalid");
  EXPECT_EQ(broken.error().where, file.string());
  for (const auto* text : {"", ",", "1,,x", "-1", "99999999999", "1 2 nowhere"})
    EXPECT_EQ(parse_tokens(text).error().id, "tokens-invalid") << text;
}

TEST(PlanOptions, RowsOfEachStep) {
  EXPECT_EQ(parse_number_lists("active", "0,1/2/0,1,2").value(), (std::vector<std::vector<int>>{{0, 1}, {2}, {0, 1, 2}}));
  for (const auto* text : {"", "0//1", "0/", "0/x", "0/-1"})
    EXPECT_EQ(parse_number_lists("active", text).error().id, "option-value") << text;
}

TEST(PlanOptions, Chunks) {
  EXPECT_EQ(parse_chunks("incremental", 3).value(), (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(parse_chunks("prefill", 3).value(), std::vector<int>{3});
  EXPECT_EQ(parse_chunks("2,1", 3).value(), (std::vector<int>{2, 1}));
  EXPECT_EQ(parse_chunks("2,", 3).error().id, "option-value");
  EXPECT_EQ(parse_chunks("-2", 3).error().id, "option-value");
}

TEST(PlanOptions, Interventions) {
  const auto exact = parse_intervention("exact:layers.*.q_rope@1,2");
  ASSERT_TRUE(exact);
  EXPECT_EQ(exact->kind, Intervention::Kind::exact);
  EXPECT_EQ(exact->tap, "layers.*.q_rope");
  EXPECT_EQ(exact->steps, (std::vector<int>{1, 2}));
  const auto variant = parse_intervention("variant:logits:quantized");
  ASSERT_TRUE(variant);
  EXPECT_EQ(variant->variant, "quantized");
  EXPECT_TRUE(variant->steps.empty());
  const auto replace = parse_intervention("replace:logits:/a:b@c/d.safetensors");
  ASSERT_TRUE(replace);
  EXPECT_EQ(replace->file, "/a:b@c/d.safetensors");
  for (const auto* text : {"", "exact", "exact:", "exact:a:b", "variant:a", "replace:a", "exactly:a", "exact:a@1,,2"})
    EXPECT_EQ(parse_intervention(text).error().id, "option-value") << text;
}

TEST(PlanOptions, Variants) {
  std::map<std::string, std::string> variants;
  ASSERT_TRUE(add_variant("rope.rank=3", variants));
  EXPECT_EQ(variants.at("rope.rank"), "3");
  for (const auto* text : {"rope", "=x", "rope="}) EXPECT_EQ(add_variant(text, variants).error().id, "option-value") << text;
}

}  // namespace
}  // namespace culprit::cli
