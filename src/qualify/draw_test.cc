#include "qualify/draw.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/file.h"
#include "base/test_dir.h"
#include "decode/architecture.h"
#include "decode/facts_json.h"
#include "decode/model.h"
#include "qualify/run_case.h"

namespace culprit {
namespace {

constexpr int kDraws = 6000;  // a spec is one of up to 24 of an entry, which is one of as many

std::vector<QualifyCase> draws() {
  std::vector<QualifyCase> all;
  for (int i = 1; i <= kDraws; ++i) {
    auto drawn = draw_case(1, fault_case_name(i));
    EXPECT_TRUE(drawn) << to_string(drawn.error());
    if (drawn) all.push_back(*std::move(drawn));
  }
  return all;
}

std::string text_of(const QualifyCase& drawn) {
  auto text = fmt::format("{} {} {} {} {}", drawn.name, drawn.seed, to_json(drawn.facts).dump(), drawn.cache.text(), name_of(drawn.dtype));
  for (const auto& fault : drawn.faults) text += fault.text();
  return text;
}

TEST(Draw, TheSameNameIsTheSameCaseAndAnotherSeedAnother) {
  EXPECT_EQ(text_of(*draw_case(1, "12")), text_of(*draw_case(1, "12")));
  EXPECT_NE(text_of(*draw_case(1, "12")), text_of(*draw_case(2, "12")));
  std::set<std::uint64_t> seeds;
  for (const auto& drawn : draws()) seeds.insert(drawn.seed);
  for (int i = 1; i <= 100; ++i) seeds.insert(draw_case(1, null_case_name(i))->seed);
  EXPECT_EQ(seeds.size(), kDraws + 100u);
}

TEST(Draw, CoversFaultsParametersArchitecturesDtypesAndCaches) {
  std::map<std::string, int> faults, architectures_seen, dtypes, caches;
  std::set<std::string> specs;
  int two = 0, with_tap = 0;
  for (const auto& drawn : draws()) {
    ++architectures_seen[drawn.facts.architecture];
    ++dtypes[std::string(name_of(drawn.dtype))];
    ++caches[drawn.cache.text().substr(0, drawn.cache.text().find(':'))];
    two += drawn.faults.size() == 2;
    for (auto fault : drawn.faults) {
      ++faults[fault.id];
      with_tap += static_cast<int>(fault.parameters.erase("tap"));
      specs.insert(fault.text());
    }
  }
  EXPECT_EQ(faults.size(), fault_catalogue().size());
  for (const auto& entry : fault_catalogue()) {
    EXPECT_GT(faults[std::string(entry.id)], kDraws / static_cast<int>(fault_catalogue().size()) / 3) << entry.id;
    for (const auto op : entry.ops)
      for (const auto& spec : hypotheses(op)) EXPECT_TRUE(spec.id != entry.id || specs.contains(spec.text())) << spec.text();
  }
  EXPECT_EQ(architectures_seen.size(), architectures().size());
  EXPECT_EQ(dtypes.size(), 3u);
  EXPECT_EQ(caches.size(), cache_kind_names().size());
  EXPECT_GT(two, kDraws / 30);
  EXPECT_LT(two, kDraws / 5);
  EXPECT_GT(with_tap, kDraws / 4);
}

TEST(Draw, EachFaultCanBreakAnOpAtItsTaps) {
  for (const auto& drawn : draws()) {
    const Graph graph(drawn.facts);
    ASSERT_TRUE(check_facts(drawn.facts)) << drawn.name;
    std::set<Op> broken;
    for (const auto& fault : drawn.faults) {
      const auto* entry = find_fault(fault.id);
      EXPECT_TRUE(std::ranges::any_of(
          graph.nodes(),
          [&](const Node& node) { return entry->can_break(node.op) && glob_match(fault.parameter("tap", "**"), node.output); }))
          << drawn.name << " " << fault.text();
      EXPECT_EQ(FaultSpec::parse(fault.text())->text(), fault.text());
      for (const auto op : entry->ops) EXPECT_TRUE(broken.insert(op).second) << drawn.name << ": two faults of one op";
    }
  }
}

TEST(Draw, ShapesAreNotOnlyPowersOfTwo) {
  std::set<int> layers, heads, kv_heads, channels, windows;
  for (const auto& drawn : draws()) {
    layers.insert(drawn.facts.layers);
    heads.insert(drawn.facts.heads);
    kv_heads.insert(drawn.facts.kv_heads);
    channels.insert(drawn.facts.head_channels);
    windows.insert(drawn.facts.window);
  }
  for (const auto* counts : {&layers, &heads, &kv_heads, &channels, &windows}) EXPECT_GE(counts->size(), 3u);
  EXPECT_TRUE(heads.contains(9));
  EXPECT_TRUE(layers.contains(3));
}

TEST(Draw, NullsHaveNoFaultAndEachKindComes) {
  std::set<NullKind> kinds;
  for (int i = 1; i <= 40; ++i) {
    const auto drawn = draw_case(1, null_case_name(i));
    ASSERT_TRUE(drawn);
    EXPECT_TRUE(drawn->is_null());
    kinds.insert(drawn->null_kind);
  }
  EXPECT_EQ(kinds.size(), 4u);
}

TEST(Draw, ModelsOfNullsCanBeRead) {
  const TestDir dir;
  for (int i = 1; i <= 12; ++i) {
    const auto drawn = *draw_case(1, null_case_name(i));
    ASSERT_TRUE(write_case_model(drawn, dir / drawn.name));
    EXPECT_TRUE(Model::open(dir / drawn.name)) << drawn.name;
  }
}

TEST(Draw, RefusesWhatIsNoName) {
  for (const char* name : {"", "0", "-1", "x", "1x", "null-", "null-0", "null"}) {
    const auto drawn = draw_case(1, name);
    ASSERT_FALSE(drawn) << name;
    EXPECT_EQ(drawn.error().id, "option-value");
  }
}

TEST(Draw, TheFindCommandSaysAllThatWasDrawn) {
  auto drawn = *draw_case(1, "12");
  drawn.faults = {*FaultSpec::parse("F05:tap=layers.*.q_rope")};
  drawn.dtype = DType::bf16;
  drawn.cache = *CacheSpec::parse("padded");
  drawn.seed = 5;
  EngineInfo engine;
  engine.name = std::string("ref");
  engine.version = std::string("0.1.0");
  EXPECT_EQ(find_command(engine, drawn, "m"),
            "culprit find m --engine ref --dtype bf16 --seed 5 --cache padded --fault 'F05:tap=layers.*.q_rope'");
  drawn.faults.clear();
  drawn.prompts = {{1, 1}, {2, 2}};
  engine.name = std::string("mlx");
  EXPECT_EQ(find_command(engine, drawn, "m"),
            "culprit find m --engine mlx@0.1.0 --dtype bf16 --seed 5 --cache padded --prompt 1,1 --prompt 2,2");
}

TEST(Draw, UnseenPlansAreValidAndPlanted) {
  for (const auto& drawn : draws()) {
    const auto plans = unseen_plans(drawn);
    EXPECT_GE(plans.size(), 4u);
    for (const auto& plan : plans) {
      EXPECT_TRUE(validate(plan));
      EXPECT_EQ(plan.faults.size(), drawn.faults.size());
    }
  }
}

}  // namespace
}  // namespace culprit
