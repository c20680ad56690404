#include "locate/known_defects.h"

#include <gtest/gtest.h>

namespace culprit {
namespace {

TEST(KnownDefects, ComparesVersionsByNumber) {
  EXPECT_LT(compare_versions("0.29.4", "0.30.0"), 0);
  EXPECT_GT(compare_versions("0.29.10", "0.29.9"), 0);
  EXPECT_EQ(compare_versions("0.30", "0.30.0"), 0);
}

TEST(KnownDefects, CitesOnlyWhatFitsOpMechanismDtypeAndRelease) {
  const auto rope = match_known("mlx@0.29.4", "rope", "F09:table=dtype", DType::bf16);
  ASSERT_EQ(rope.size(), 1u);
  EXPECT_TRUE(rope[0].release_fits);
  EXPECT_EQ(rope[0].defect->reference, "mlx 2791");
  EXPECT_TRUE(match_known("mlx@0.29.4", "rope", "F09:table=dtype", DType::f32).empty());
  EXPECT_TRUE(match_known("mlx@0.29.4", "sdpa", "F09:table=dtype", DType::bf16).empty());
  EXPECT_TRUE(match_known("mlx@0.29.4", "rope", "F08:position=zero", DType::bf16).empty());
  ASSERT_EQ(match_known("mlx@0.30.1", "rope", "F09:table=dtype", DType::bf16).size(), 1u);
  EXPECT_FALSE(match_known("mlx@0.30.1", "rope", "F09:table=dtype", DType::bf16)[0].release_fits);
  EXPECT_FALSE(match_known("ref", "rope", "F09:table=dtype", DType::bf16)[0].release_fits);
}

TEST(KnownDefects, AMetalDefectIsNotTheCauseOnACpuBuild) {
  const auto grid = match_known("mlx@0.31.2", "rope", "F01:content=input", DType::f32);
  ASSERT_EQ(grid.size(), 1u);
  EXPECT_FALSE(grid[0].release_fits);
  EXPECT_NE(grid[0].text().find("not among those affected"), std::string::npos);
}

}  // namespace
}  // namespace culprit
