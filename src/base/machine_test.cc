#include "base/machine.h"

#include <gtest/gtest.h>

namespace culprit {
namespace {

TEST(Machine, HasMemory) { EXPECT_GT(physical_memory_bytes(), std::int64_t{1} << 28); }

}  // namespace
}  // namespace culprit
