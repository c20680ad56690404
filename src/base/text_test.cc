#include "base/text.h"

#include <gtest/gtest.h>

namespace culprit {
namespace {

constexpr std::string_view kNames[] = {"mlx", "ref", "sdpa", "rms_norm", "embedding"};

TEST(Nearest, FindsSlips) {
  EXPECT_EQ(nearest("mxl", kNames), "mlx");  // swapped
  EXPECT_EQ(nearest("MLX", kNames), "mlx");
  EXPECT_EQ(nearest("reff", kNames), "ref");
  EXPECT_EQ(nearest("rmsnorm", kNames), "rms_norm");
  EXPECT_EQ(nearest("embeding", kNames), "embedding");
}

TEST(Nearest, OffersNothingFar) {
  EXPECT_EQ(nearest("pytorch", kNames), "");
  EXPECT_EQ(nearest("", kNames), "");
  EXPECT_EQ(nearest("xyz", kNames), "");
  EXPECT_EQ(nearest("mlx", {}), "");
}

}  // namespace
}  // namespace culprit
