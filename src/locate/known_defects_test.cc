#include "locate/known_defects.h"

#include <gtest/gtest.h>

#include <set>

#include "decode/graph.h"
#include "fault/fault.h"

namespace culprit {
namespace {

TEST(KnownDefects, ComparesVersionsByNumber) {
  EXPECT_LT(compare_versions("0.29.4", "0.30.0"), 0);
  EXPECT_GT(compare_versions("0.29.10", "0.29.9"), 0);
  EXPECT_EQ(compare_versions("0.30", "0.30.0"), 0);
}

TEST(KnownDefects, EachEntryIsWholeAndNamedOnce) {
  std::set<std::string_view> references, links;
  for (const auto& defect : known_defects()) {
    EXPECT_TRUE(references.insert(defect.reference).second) << defect.reference;
    EXPECT_TRUE(links.insert(defect.link).second) << defect.link;
    const auto slash = defect.link.find('/'), hash = defect.link.find('#');
    ASSERT_TRUE(slash != std::string_view::npos && hash != std::string_view::npos && slash < hash) << defect.link;
    // The number is the reference's, and all of it is digits.
    const auto number = defect.link.substr(hash + 1);
    EXPECT_FALSE(number.empty() || number.find_first_not_of("0123456789") != std::string_view::npos) << defect.link;
    EXPECT_TRUE(defect.reference.ends_with(number)) << defect.reference;
    for (const auto text : {defect.engine, defect.op, defect.summary}) EXPECT_FALSE(text.empty()) << defect.reference;
    EXPECT_TRUE(defect.last.empty() || defect.first.empty() || compare_versions(defect.first, defect.last) <= 0) << defect.reference;
    EXPECT_TRUE(defect.fixed_in.empty() || compare_versions(defect.last, defect.fixed_in) < 0) << defect.reference;
    // What the catalogue holds must be spelled as it spells it, and break the op that the entry names; loaders are apart.
    const auto* entry = find_fault(defect.fault.substr(0, defect.fault.find(':')));
    if (entry == nullptr || defect.op == "load") continue;
    EXPECT_TRUE(FaultSpec::parse(defect.fault)) << defect.fault;
    const auto op = parse_op(defect.op);
    ASSERT_TRUE(op) << defect.op;
    EXPECT_TRUE(entry->can_break(*op)) << defect.reference;
  }
}

TEST(KnownDefects, HoldsEachPublicExampleOfTheCatalogue) {
  std::set<std::string, std::less<>> references;
  for (const auto& defect : known_defects()) references.emplace(defect.reference);
  for (const auto& entry : fault_catalogue()) {
    std::string repository;
    std::string_view rest = entry.public_example;  // "mlx 3494, mlx-rs 359"; "mlx-lm 1097, 1396"
    while (!rest.empty()) {
      const auto comma = rest.find(", ");
      const auto one = rest.substr(0, comma);
      rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 2);
      if (const auto space = one.rfind(' '); space != std::string_view::npos) repository = std::string(one.substr(0, space + 1));
      const auto reference = repository + std::string(one.substr(one.rfind(' ') == std::string_view::npos ? 0 : one.rfind(' ') + 1));
      EXPECT_TRUE(references.contains(reference)) << entry.id << ": " << reference;
    }
  }
}

SeenDefect rope_2791() {
  return {.engine_spec = "mlx@0.29.4",
          .backend = "cpu",
          .op = "rope",
          .fault = "F09:table=dtype",
          .condition = "bf16 and position >= 257",
          .dtype = DType::bf16};
}

/// What does not fit in the entry for `reference`; a text of its own when it is no candidate.
std::vector<std::string> misfits(const SeenDefect& seen, std::string_view reference) {
  for (const auto& match : match_known(seen))
    if (match.defect->reference == reference) return match.misfits;
  return {"no candidate"};
}
using Misfits = std::vector<std::string>;

TEST(KnownDefects, ACauseFitsInEverything) {
  const auto matches = match_known(rope_2791());
  ASSERT_FALSE(matches.empty());
  EXPECT_EQ(matches[0].defect->reference, "mlx 2791");
  EXPECT_TRUE(matches[0].fits());
  EXPECT_EQ(matches[0].text(),
            "mlx 2791 (ml-explore/mlx#2791): RoPE computes positions and frequencies in the input's dtype; releases up to 0.29.4, fixed in "
            "0.30.0");
}

TEST(KnownDefects, EachFieldThatIsWrongBreaksTheMatchAndIsNamed) {
  const auto changed = [](auto&& change) {
    auto seen = rope_2791();
    change(seen);
    return misfits(seen, "mlx 2791");
  };
  EXPECT_EQ(changed([](SeenDefect&) {}), Misfits{});
  EXPECT_EQ(changed([](SeenDefect& seen) { seen.op = "sdpa"; }), Misfits{"op sdpa, not rope"});
  EXPECT_EQ(changed([](SeenDefect& seen) { seen.dtype = DType::f32; }), Misfits{"dtype f32, not bf16 or f16"});
  EXPECT_EQ(changed([](SeenDefect& seen) { seen.engine_spec = "mlx@0.30.1"; }), Misfits{"release 0.30.1"});
  EXPECT_EQ(changed([](SeenDefect& seen) { seen.engine_spec = "mlx"; }), Misfits{"release not known"});
  EXPECT_EQ(changed([](SeenDefect& seen) { seen.engine_spec = "ref"; }), Misfits{"engine ref, not mlx"});
  EXPECT_EQ(changed([](SeenDefect& seen) { seen.fault = "F09:table=unscaled"; }), Misfits{"no candidate"});
  EXPECT_EQ(changed([](SeenDefect& seen) { seen.fault = "F08:position=zero"; }), Misfits{"no candidate"});
}

TEST(KnownDefects, ADefectOfAnotherBackendOrConditionIsNotTheCause) {
  SeenDefect grid{.engine_spec = "mlx@0.31.2",
                  .backend = "metal",
                  .op = "rope",
                  .fault = "F01:content=input",
                  .condition = "L = 1 and index of dimension 0 > 0",
                  .dtype = DType::f32};
  EXPECT_EQ(misfits(grid, "mlx 3494"), Misfits{});
  auto other = grid;
  other.backend = "cpu";
  EXPECT_EQ(misfits(other, "mlx 3494"), Misfits{"backend cpu, not Metal"});
  other = grid;
  other.condition = "index of dimension 0 > 0";
  EXPECT_EQ(misfits(other, "mlx 3494"), Misfits{"condition 'index of dimension 0 > 0', which lacks 'L = 1'"});
  other = grid;
  other.engine_spec = "mlx@0.29.1";
  EXPECT_EQ(misfits(other, "mlx 3494"), Misfits{"release 0.29.1"}) << "before the first affected one";
  const auto text = match_known(other)[0].text();
  EXPECT_NE(text.find("but not that defect: release 0.29.1"), std::string::npos) << text;
}

TEST(KnownDefects, WhoseReleasesAreNotKnownIsNeverTheCause) {
  const SeenDefect seen{
      .engine_spec = "mlx@0.32.4", .backend = "cpu", .op = "sdpa", .fault = "F04:tokens=any", .condition = "row > 0", .dtype = DType::f32};
  EXPECT_EQ(misfits(seen, "mlx 4431"), Misfits{"release 0.32.4; the affected ones are not known"});
}

TEST(KnownDefects, TheLoadersDefectNeedsItsBlockType) {
  SeenDefect seen{.engine_spec = "mlx@0.31.2",
                  .backend = "cpu",
                  .op = "load",
                  .fault = "F17:q4_1_nibbles=2",
                  .condition = "block type Q4_1",
                  .dtype = DType::f32};
  EXPECT_EQ(misfits(seen, "mlx 3664"), Misfits{});
  seen.condition = "block type Q8_0";
  EXPECT_EQ(misfits(seen, "mlx 3664"), Misfits{"condition 'block type Q8_0', which lacks 'block type Q4_1'"});
  seen.fault = "F17:scale=one";
  EXPECT_EQ(misfits(seen, "mlx 3664"), Misfits{"no candidate"});
}

}  // namespace
}  // namespace culprit
