// The public cases of the folder cases/, each played on the engine that it names and held against what it says.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/test_dir.h"
#include "cases/play.h"
#include "installed.h"

namespace culprit {
namespace {

std::vector<std::string> names(bool on_ref) {
  std::vector<std::string> found;
  if (const auto cases = read_cases(CULPRIT_SOURCE_DIR "/cases"))
    for (const auto& a_case : *cases)
      if ((a_case.setting.engine == "ref") == on_ref) found.push_back(a_case.name);
  return found;
}

class PublicCase : public testing::TestWithParam<std::string> {
 protected:
  void expect_it_holds(const std::string& engine) {
    const TestDir dir;
    const auto a_case = read_case(CULPRIT_SOURCE_DIR "/cases/" + GetParam() + ".json");
    ASSERT_TRUE(a_case) << to_string(a_case.error());
    const auto played = play(*a_case, installed(), {.engine = engine, .work = dir.path(), .progress = {}});
    if (!played && (played.error().id == "engine-missing" || played.error().id == "model-missing"))
      CULPRIT_NOT_INSTALLED(to_string(played.error()));
    ASSERT_TRUE(played) << to_string(played.error());
    EXPECT_TRUE(played->holds()) << to_text(*a_case, *played);
    EXPECT_LT(played->verdict.seconds, 600);
  }
};

std::string test_name(const testing::TestParamInfo<std::string>& name) {
  auto text = name.param;
  std::ranges::replace(text, '-', '_');
  return text;
}

#ifdef CULPRIT_RELEASED_CASES
class ReleasedCase : public PublicCase {};
TEST_P(ReleasedCase, Holds) { expect_it_holds(""); }
INSTANTIATE_TEST_SUITE_P(All, ReleasedCase, testing::ValuesIn(names(false)), test_name);
#else
class PlantedCase : public PublicCase {};
TEST_P(PlantedCase, Holds) { expect_it_holds(""); }
INSTANTIATE_TEST_SUITE_P(All, PlantedCase, testing::ValuesIn(names(true)), test_name);
#endif

}  // namespace
}  // namespace culprit
