#include "engine/plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "decode/cache_spec.h"

namespace culprit {
namespace {

LoadPlan some_load_plan() {
  return {
      .model = "models/smol \"q\".gguf", .dtype = DType::bf16, .weights = WeightSource::engine, .weight_fault = {.q4_1_nibble_offset = 2}};
}

/// Every field differs from its default, but `active`, which no re-prefill can have.
RunPlan some_run_plan() {
  RunPlan plan;
  plan.name = "row alone";
  plan.sequences = {{1, 2, 3, 4}, {49151, 0, 7, 7}};
  plan.sequence_ids = {5, 2};
  plan.position_base = std::numeric_limits<std::int64_t>::max();
  plan.chunks = {1, 3};
  plan.reprefill = true;
  plan.drafts = {{.step = 1, .tokens = {{3}, {4}}}};
  plan.cache = "padded";
  plan.poison = true;
  plan.variants = {{"rope", "composed"}, {"rope.rank", "3"}};
  plan.capture = {"layers.*.q", "logits"};
  plan.capture_steps = {1};
  plan.hash_only = true;
  plan.interventions = {{.kind = Intervention::Kind::exact, .tap = "layers.0.*"},
                        {.kind = Intervention::Kind::variant, .tap = "**", .steps = {0, 1}, .variant = "composed"},
                        {.kind = Intervention::Kind::replace, .tap = "embed", .steps = {1}, .file = "values.safetensors"}};
  plan.faults = {*FaultSpec::parse("F01"), *FaultSpec::parse("F01:content=zero,tap=layers.0.q_rope")};
  plan.sync = Sync::async;
  plan.sync_taps = {"layers.0.*", "embed@1"};
  return plan;
}

RunPlan small_plan() {
  RunPlan plan;
  plan.sequences = {{1, 2, 3}};
  plan.chunks = {1, 2};
  return plan;
}

TEST(PlanTest, ALoadPlanRoundTripsExactly) {
  const auto text = to_json(some_load_plan()).dump();
  const auto actual = load_plan_from_json(*parse_json(text));
  ASSERT_TRUE(actual) << to_string(actual.error());
  EXPECT_EQ(actual->model, some_load_plan().model);
  EXPECT_EQ(actual->dtype, DType::bf16);
  EXPECT_EQ(actual->weights, WeightSource::engine);
  EXPECT_EQ(actual->weight_fault.q4_1_nibble_offset, 2);
  EXPECT_EQ(to_json(*actual).dump(), text);
}

TEST(PlanTest, ARunPlanRoundTripsExactly) {
  const auto expected = some_run_plan();
  const auto text = to_json(expected).dump();
  const auto actual = run_plan_from_json(*parse_json(text));
  ASSERT_TRUE(actual) << to_string(actual.error());
  EXPECT_EQ(to_json(*actual).dump(), text);
  EXPECT_EQ(actual->name, expected.name);
  EXPECT_EQ(actual->sequences, expected.sequences);
  EXPECT_EQ(actual->sequence_ids, expected.sequence_ids);
  EXPECT_EQ(actual->position_base, expected.position_base);
  EXPECT_EQ(actual->chunks, expected.chunks);
  EXPECT_EQ(actual->reprefill, expected.reprefill);
  EXPECT_EQ(actual->sync_taps, expected.sync_taps);
  EXPECT_EQ(actual->cache, expected.cache);
  EXPECT_EQ(actual->poison, expected.poison);
  ASSERT_EQ(actual->drafts.size(), 1u);
  EXPECT_EQ(actual->drafts[0].step, 1);
  EXPECT_EQ(actual->drafts[0].tokens, expected.drafts[0].tokens);
  EXPECT_EQ(actual->variants, expected.variants);
  EXPECT_EQ(actual->capture, expected.capture);
  EXPECT_EQ(actual->capture_steps, expected.capture_steps);
  EXPECT_EQ(actual->hash_only, expected.hash_only);
  EXPECT_EQ(actual->sync, expected.sync);
  ASSERT_EQ(actual->interventions.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(actual->interventions[i].kind, expected.interventions[i].kind);
    EXPECT_EQ(actual->interventions[i].tap, expected.interventions[i].tap);
    EXPECT_EQ(actual->interventions[i].steps, expected.interventions[i].steps);
    EXPECT_EQ(actual->interventions[i].variant, expected.interventions[i].variant);
    EXPECT_EQ(actual->interventions[i].file, expected.interventions[i].file);
  }
  ASSERT_EQ(actual->faults.size(), 2U);
  EXPECT_EQ(actual->faults[1].parameters, expected.faults[1].parameters);
}

TEST(PlanTest, AbsentFieldsAreTheDefaults) {
  const auto actual = run_plan_from_json(*parse_json(R"({"sequences":[[1,2,3]],"chunks":[1,2]})"));
  ASSERT_TRUE(actual) << to_string(actual.error());
  EXPECT_EQ(to_json(*actual), to_json(small_plan()));
  const auto load = load_plan_from_json(*parse_json(R"({"model":"m"})"));
  ASSERT_TRUE(load);
  EXPECT_EQ(to_json(*load), to_json(LoadPlan{.model = "m"}));
}

TEST(PlanTest, EveryFieldIsReadStrictly) {
  const auto good = to_json(some_run_plan());
  for (const auto& [key, value] : good.items()) {
    auto json = good;
    json[key] = Json{{"not", "this"}, {"nor", 1.5}};
    if (key == "variants") json[key] = 7;
    const auto read = run_plan_from_json(json);
    ASSERT_FALSE(read) << key;
    EXPECT_EQ(read.error().id, "plan-invalid") << key;
    EXPECT_NE(read.error().message.find(key), std::string::npos) << read.error().message;
  }
  const std::vector<std::pair<const char*, const char*>> bad = {{"chunks", "[1.5]"},
                                                                {"chunks", "[true]"},
                                                                {"chunks", "[4294967296]"},
                                                                {"sequences", "[[-1e3]]"},
                                                                {"sequences", "[1]"},
                                                                {"reprefill", "1"},
                                                                {"position_base", "9223372036854775808"},
                                                                {"sync", "\"each_opp\""},
                                                                {"interventions", "[{\"kind\":\"exact\"}]"},
                                                                {"interventions", "[{\"kind\":\"x\",\"tap\":\"q\"}]"},
                                                                {"unknown", "0"}};
  for (const auto& [key, value] : bad) {
    auto json = good;
    json[key] = *parse_json(value);
    const auto read = run_plan_from_json(json);
    ASSERT_FALSE(read) << key << value;
    EXPECT_EQ(read.error().id, "plan-invalid") << key << value;
  }
  EXPECT_EQ(run_plan_from_json(Json::array()).error().id, "plan-invalid");
}

TEST(PlanTest, NamesThatAreUnknownKeepTheirOwnErrors) {
  auto run = to_json(small_plan());
  run["faults"] = {"F0l"};
  EXPECT_EQ(run_plan_from_json(run).error().id, "fault-unknown");
  run["faults"] = {"F01:content=nonsense"};
  EXPECT_EQ(run_plan_from_json(run).error().id, "fault-parameter");
  auto load = to_json(some_load_plan());
  load["dtype"] = "f8";
  EXPECT_EQ(load_plan_from_json(load).error().id, "dtype-unknown");
  load = to_json(some_load_plan());
  load["weights"] = "engin";
  EXPECT_NE(load_plan_from_json(load).error().message.find("did you mean engine?"), std::string::npos);
  load["weights"] = "engine";
  load["weight_fault"]["q4_1_nibble_offse"] = 4;
  EXPECT_EQ(load_plan_from_json(load).error().id, "plan-invalid");
}

TEST(PlanTest, ValidateRefusesContradictions) {
  ASSERT_TRUE(validate(small_plan()));
  ASSERT_TRUE(validate(some_run_plan()));
  using Change = std::function<void(RunPlan&)>;
  using Kind = Intervention::Kind;
  const std::vector<std::pair<const char*, Change>> changes = {
      {"chunks too short",
       [](RunPlan& plan) {
         plan.chunks = {1, 1};
       }},
      {"chunks too long",
       [](RunPlan& plan) {
         plan.chunks = {3, 1};
       }},
      {"no chunks", [](RunPlan& plan) { plan.chunks = {}; }},
      {"empty chunk",
       [](RunPlan& plan) {
         plan.chunks = {3, 0};
       }},
      {"negative chunk",
       [](RunPlan& plan) {
         plan.chunks = {4, -1};
       }},
      {"chunks whose sum wraps",
       [](RunPlan& plan) {
         plan.chunks = {2147483647, 2147483647, 5};
       }},  // 3 modulo 2^32
      {"one offset for unequal rows",
       [](RunPlan& plan) {
         plan.sequences.push_back({1});
         plan.variants = {{"rope.offset", "scalar"}};
       }},
      {"draft at no step", [](RunPlan& plan) { plan.drafts = {{.step = 2, .tokens = {{1}}}}; }},
      {"two drafts at a step",
       [](RunPlan& plan) {
         plan.drafts = {{.step = 1, .tokens = {{1}}}, {.step = 1, .tokens = {{1}}}};
       }},
      {"draft of nothing", [](RunPlan& plan) { plan.drafts = {{.step = 1, .tokens = {{}}}}; }},
      {"draft of other rows",
       [](RunPlan& plan) {
         plan.drafts = {{.step = 1, .tokens = {{1}, {1}}}};
       }},
      {"sequence ids",
       [](RunPlan& plan) {
         plan.sequence_ids = {0, 1};
       }},
      {"negative base", [](RunPlan& plan) { plan.position_base = -1; }},
      {"unknown cache", [](RunPlan& plan) { plan.cache = "ring"; }},
      {"empty glob", [](RunPlan& plan) { plan.capture = {""}; }},
      {"step beyond the end", [](RunPlan& plan) { plan.capture_steps = {2}; }},
      {"negative step", [](RunPlan& plan) { plan.capture_steps = {-1}; }},
      {"unknown sync", [](RunPlan& plan) { plan.sync = static_cast<Sync>(4); }},
      {"rank",
       [](RunPlan& plan) {
         plan.variants = {{"rope.rank", "5"}};
       }},
      {"offset",
       [](RunPlan& plan) {
         plan.variants = {{"rope.offset", "vector"}};
       }},
      {"empty variant",
       [](RunPlan& plan) {
         plan.variants = {{"rope", ""}};
       }},
      {"no tap", [](RunPlan& plan) { plan.interventions = {{.kind = Kind::exact}}; }},
      {"variant of nothing", [](RunPlan& plan) { plan.interventions = {{.kind = Kind::variant, .tap = "q"}}; }},
      {"replace by nothing", [](RunPlan& plan) { plan.interventions = {{.kind = Kind::replace, .tap = "q"}}; }},
      {"exact with a variant", [](RunPlan& plan) { plan.interventions = {{.kind = Kind::exact, .tap = "q", .variant = "x"}}; }},
      {"variant with a file",
       [](RunPlan& plan) { plan.interventions = {{.kind = Kind::variant, .tap = "q", .variant = "x", .file = "f"}}; }},
      {"intervention at no step", [](RunPlan& plan) { plan.interventions = {{.kind = Kind::exact, .tap = "q", .steps = {2}}}; }},
      {"unknown kind", [](RunPlan& plan) { plan.interventions = {{.kind = static_cast<Kind>(4), .tap = "q"}}; }},
  };
  for (const auto& [what, change] : changes) {
    auto plan = small_plan();
    change(plan);
    const auto valid = validate(plan);
    ASSERT_FALSE(valid) << what;
    EXPECT_EQ(valid.error().id, "plan-invalid") << what;
  }
  auto plan = small_plan();
  plan.sequences = {};
  EXPECT_EQ(validate(plan).error().id, "tokens-invalid");
  plan.sequences = {{}};
  plan.chunks = {};
  EXPECT_EQ(validate(plan).error().id, "tokens-invalid");
}

RunPlan reusing_plan() {
  RunPlan plan;
  plan.sequences = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  plan.chunks = {1, 1};
  plan.reuse = Reuse{.common = 2, .tokens = {{11, 12, 13}, {14, 15, 16}}, .chunks = {1, 3, 1}};
  return plan;
}

TEST(PlanTest, AReusedPrefixRoundTripsExactly) {
  auto plan = reusing_plan();
  plan.restore_after = {0, 3};
  const auto text = to_json(plan).dump();
  const auto actual = run_plan_from_json(*parse_json(text));
  ASSERT_TRUE(actual) << to_string(actual.error());
  EXPECT_EQ(to_json(*actual).dump(), text);
  ASSERT_TRUE(actual->reuse);
  EXPECT_EQ(actual->reuse->common, 2);
  EXPECT_EQ(actual->reuse->tokens, plan.reuse->tokens);
  EXPECT_EQ(actual->reuse->chunks, plan.reuse->chunks);
  EXPECT_EQ(actual->restore_after, plan.restore_after);
  for (const auto* bad : {"3", R"({"common":2})", R"({"common":2,"tokens":[[1]],"chunks":[3],"other":1})"}) {
    auto json = to_json(plan);
    json["reuse"] = *parse_json(bad);
    EXPECT_EQ(run_plan_from_json(json).error().id, "plan-invalid") << bad;
  }
}

TEST(PlanTest, TheStepsOfTheOtherSequenceComeFirst) {
  const auto plan = reusing_plan();
  ASSERT_TRUE(validate(plan)) << to_string(validate(plan).error());
  EXPECT_EQ(steps_of(plan), 5);
  const auto each = [&](int (*number)(const RunPlan&, int)) {
    std::vector<int> numbers;
    for (int step = 0; step < steps_of(plan); ++step) numbers.push_back(number(plan, step));
    return numbers;
  };
  EXPECT_EQ(each(fed_through), (std::vector<int>{1, 2, 2, 3, 4}));
  EXPECT_EQ(each(kept_at), (std::vector<int>{1, 1, 0, 1, 1}));
  EXPECT_EQ(each(foreign_at), (std::vector<int>{0, 2, 1, 0, 0}));
  EXPECT_EQ(each(foreign_held), (std::vector<int>{0, 2, 3, 0, 0}));
  EXPECT_EQ(each(taken_back_after), (std::vector<int>{0, 0, 3, 0, 0}));
  EXPECT_EQ(foreign_tokens(plan, 1, 0), (std::vector<int>{11, 12}));
  EXPECT_EQ(foreign_tokens(plan, 2, 1), (std::vector<int>{16}));
  EXPECT_EQ(foreign_tokens(plan, 3, 1), std::vector<int>());
}

TEST(PlanTest, ReuseAndRestoreRefuseContradictions) {
  using Change = std::function<void(RunPlan&)>;
  const std::vector<std::pair<const char*, Change>> changes = {
      {"nothing in common", [](RunPlan& plan) { plan.reuse->common = 0; }},
      {"all in common", [](RunPlan& plan) { plan.reuse->common = 4; }},
      {"chunks of the whole row",
       [](RunPlan& plan) {
         plan.chunks = {2, 2};
       }},
      {"other rows", [](RunPlan& plan) { plan.reuse->tokens.pop_back(); }},
      {"unequal rows", [](RunPlan& plan) { plan.reuse->tokens[1].pop_back(); }},
      {"no tokens",
       [](RunPlan& plan) {
         plan.reuse->tokens = {{}, {}};
         plan.reuse->chunks = {2};
       }},
      {"chunks too short",
       [](RunPlan& plan) {
         plan.reuse->chunks = {2, 2};
       }},
      {"chunks whose sum wraps",
       [](RunPlan& plan) {
         plan.reuse->chunks = {2147483647, 2147483647, 7};
       }},
      {"empty chunk",
       [](RunPlan& plan) {
         plan.reuse->chunks = {5, 0};
       }},
      {"re-prefill", [](RunPlan& plan) { plan.reprefill = true; }},
      {"padding", [](RunPlan& plan) { plan.sequences[1].pop_back(); }},
      {"a draft of the other sequence",
       [](RunPlan& plan) {
         plan.drafts = {{.step = 2, .tokens = {{1}, {2}}}};
       }},
      {"restored at the end", [](RunPlan& plan) { plan.restore_after = {4}; }},
      {"restored twice",
       [](RunPlan& plan) {
         plan.restore_after = {1, 1};
       }},
      {"restored before all", [](RunPlan& plan) { plan.restore_after = {-1}; }},
      {"restored for a re-prefill",
       [](RunPlan& plan) {
         plan.reuse.reset();
         plan.chunks = {2, 2};
         plan.reprefill = true;
         plan.restore_after = {0};
       }},
  };
  for (const auto& [what, change] : changes) {
    auto plan = reusing_plan();
    change(plan);
    const auto valid = validate(plan);
    ASSERT_FALSE(valid) << what;
    EXPECT_EQ(valid.error().id, "plan-invalid") << what;
  }
  auto plan = reusing_plan();
  plan.restore_after = {0, 3};
  plan.drafts = {{.step = 3, .tokens = {{1}, {2}}}};
  EXPECT_TRUE(validate(plan));
  EXPECT_EQ(validate_tokens(plan, 16).error().id, "tokens-invalid");
  EXPECT_TRUE(validate_tokens(plan, 17));
}

// The cache must be able to go back to what is common.
TEST(PlanTest, AReusedPrefixMustStillBeHeld) {
  auto plan = reusing_plan();
  for (const auto* cache : {"concat", "padded", "rotating:size=5", "sink_window:sink=0,window=5", "quantized:bits=4,group=32"}) {
    plan.cache = cache;
    EXPECT_TRUE(validate(plan)) << cache;
  }
  for (const auto* cache : {"rotating:size=4", "rotating:size=3,keep=2", "sink_window:sink=1,window=3"}) {
    plan.cache = cache;
    const auto valid = validate(plan);
    ASSERT_FALSE(valid) << cache;
    EXPECT_EQ(valid.error().id, "not-supported") << cache;
  }
}

TEST(PlanTest, ACacheHasItsParametersAndNoOthers) {
  for (const auto* text : {"concat", "padded", "rotating:size=5,keep=2", "sink_window:sink=2,window=3", "sink_window:sink=0,window=1",
                           "quantized:bits=8,group=64", "quantized:bits=2,group=128"}) {
    const auto spec = CacheSpec::parse(text);
    ASSERT_TRUE(spec) << text;
    EXPECT_EQ(spec->text(), text);
  }
  EXPECT_EQ(CacheSpec::parse("rotating:size=5")->text(), "rotating:size=5,keep=0");
  for (const auto* text : {"",
                           "ring",
                           "concat:size=3",
                           "rotating",
                           "rotating:keep=1",
                           "rotating:size=0",
                           "rotating:size=2,keep=2",
                           "rotating:size=5,size=5",
                           "rotating:size=5,window=2",
                           "rotating:size=x",
                           "rotating:size=",
                           "rotating:size=-1",
                           "rotating:size=99999999999999999999",
                           "sink_window:sink=1",
                           "sink_window:sink=1,window=0",
                           "quantized",
                           "quantized:bits=8",
                           "quantized:group=64",
                           "quantized:bits=3,group=64",
                           "quantized:bits=16,group=64",
                           "quantized:bits=8,group=48",
                           "quantized:bits=8,group=16"}) {
    const auto spec = CacheSpec::parse(text);
    ASSERT_FALSE(spec) << text;
    EXPECT_EQ(spec.error().id, "plan-invalid") << text;
  }
  EXPECT_NE(CacheSpec::parse("rotatin:size=3").error().message.find("did you mean rotating?"), std::string::npos);
}

TEST(PlanTest, WhatACacheDroppedCannotBeTakenBack) {
  auto plan = small_plan();
  plan.drafts = {{.step = 1, .tokens = {{3}}}};
  for (const auto* cache : {"concat", "padded", "rotating:size=4", "sink_window:sink=1,window=2"}) {
    plan.cache = cache;
    EXPECT_TRUE(validate(plan)) << cache;
  }
  for (const auto* cache : {"rotating:size=1", "sink_window:sink=1,window=2"}) {
    plan.cache = cache;
    plan.drafts[0].tokens = {{1, 2, 3}};
    EXPECT_EQ(validate(plan).error().id, "not-supported") << cache;
  }
  plan = small_plan();
  plan.sequences.push_back({1});
  EXPECT_TRUE(validate(plan));
  plan.cache = "rotating:size=4";
  EXPECT_EQ(validate(plan).error().id, "not-supported") << "it would keep padding";
}

TEST(PlanTest, TokensAreOfTheVocabulary) {
  auto plan = small_plan();
  EXPECT_TRUE(validate_tokens(plan, 4));
  EXPECT_EQ(validate_tokens(plan, 3).error().id, "tokens-invalid");
  plan.sequences[0][1] = -1;
  const auto negative = validate_tokens(plan, 4);
  ASSERT_FALSE(negative);
  EXPECT_NE(negative.error().message.find("row 0, token 1: id -1"), std::string::npos) << negative.error().message;
}

/// Rows 0 and 1 begin, the second padded by one token; row 2 joins, row 1 leaves.
RunPlan joining_plan() {
  RunPlan plan;
  plan.sequences = {{1, 2, 3, 4}, {5, 6}, {7, 8}};
  plan.chunks = {2, 1, 1};
  plan.active = {{0, 1}, {0, 1, 2}, {2, 0}};
  return plan;
}

TEST(PlanTest, ARowIsFedByItsOwnSteps) {
  const auto plan = joining_plan();
  EXPECT_EQ(run_plan_from_json(to_json(plan))->active, plan.active);
  ASSERT_TRUE(validate(plan));
  EXPECT_EQ(rows_at(plan, 2), (std::vector<std::size_t>{2, 0}));
  EXPECT_EQ(rows_at(small_plan(), 1), std::vector<std::size_t>{0});
  EXPECT_EQ(fed_through(plan, 1, 0), 3);
  EXPECT_EQ(fed_through(plan, 0, 2), 0);
  EXPECT_EQ(padding_of(plan, 0), 0);
  EXPECT_EQ(padding_of(plan, 1), 1);
  EXPECT_EQ(padding_of(plan, 2), 0);
  EXPECT_TRUE(has_padding(plan));
  EXPECT_TRUE(has_row_offsets(plan));
  EXPECT_FALSE(rows_changed_at(plan, 0));
  EXPECT_TRUE(rows_changed_at(plan, 1));
}

TEST(PlanTest, RowsThatJoinOrLeaveHaveToMakeSense) {
  const auto error_of = [](const std::function<void(RunPlan&)>& change) {
    auto plan = joining_plan();
    change(plan);
    const auto valid = validate(plan);
    return valid ? std::string() : valid.error().id + ": " + valid.error().message;
  };
  EXPECT_EQ(error_of([](RunPlan& p) { p.active.pop_back(); }), "plan-invalid: active: expected the rows of 3 steps, got those of 2");
  EXPECT_EQ(error_of([](RunPlan& p) { p.active[1].clear(); }), "plan-invalid: active: step 1 feeds no row");
  EXPECT_EQ(error_of([](RunPlan& p) { p.active[1] = {0, 1, 3}; }), "plan-invalid: active: step 1 has row 3; there are 3 rows");
  EXPECT_EQ(error_of([](RunPlan& p) { p.active[1] = {0, -1, 2}; }), "plan-invalid: active: step 1 has row -1; there are 3 rows");
  EXPECT_EQ(error_of([](RunPlan& p) { p.active[1] = {0, 1, 1}; }), "plan-invalid: active: step 1 has row 1 twice");
  EXPECT_EQ(error_of([](RunPlan& p) { p.sequences.push_back({1}); }), "plan-invalid: active: no step feeds row 3");
  EXPECT_EQ(error_of([](RunPlan& p) {
              p.sequence_ids = {4, 5, 4};
            }),
            "plan-invalid: two rows are of sequence 4: rows that join or leave are told apart by theirs");
  EXPECT_EQ(error_of([](RunPlan& p) { p.sequences[0].push_back(9); }), "plan-invalid: the steps of row 0 feed 4 tokens, it has 5");
  EXPECT_EQ(error_of([](RunPlan& p) { p.sequences[2].pop_back(); }),
            "plan-invalid: all rows that begin at step 1 are padded, by 1 tokens at least");
  EXPECT_EQ(error_of([](RunPlan& p) { p.chunks = {2147483647, 2147483647, 5}; }), "plan-invalid: the chunks feed 4294967299 tokens");
  EXPECT_EQ(error_of([](RunPlan& p) { p.reprefill = true; }), "plan-invalid: a re-prefill has no cache that a row could join or leave");
  EXPECT_EQ(error_of([](RunPlan& p) { p.cache = "rotating:size=9"; }),
            "not-supported: rows that join or leave with the cache rotating:size=9; only concat and padded can be re-made");
  EXPECT_EQ(error_of([](RunPlan& p) { p.variants["rope.rank"] = "3"; }),
            "plan-invalid: rows that join or leave need an offset for each row: neither rope.rank=3 nor rope.offset=scalar can do that");
  EXPECT_EQ(error_of([](RunPlan& p) {
              p.drafts = {{.step = 2, .tokens = {{1}, {2}, {3}}}};
            }),
            "plan-invalid: the draft of step 2 has 3 rows, the step 2");
  EXPECT_EQ(error_of([](RunPlan& p) { p.drafts = {{.step = 2, .tokens = {{1}, {2}}}}; }), "");
}

TEST(PlanTest, ASyncActsAfterItsTaps) {
  auto plan = small_plan();
  plan.sync = Sync::each_op;
  EXPECT_TRUE(syncs_after(plan, "embed", 0));
  plan.sync_taps = {"layers.*.q@1", "embed", "odd@name"};
  ASSERT_TRUE(validate(plan));
  EXPECT_TRUE(syncs_after(plan, "embed", 0));
  EXPECT_FALSE(syncs_after(plan, "layers.3.q", 0));
  EXPECT_TRUE(syncs_after(plan, "layers.3.q", 1));
  EXPECT_FALSE(syncs_after(plan, "logits", 1));
  EXPECT_TRUE(syncs_after(plan, "odd@name", 1));
  plan.sync_taps = {"embed@2"};
  EXPECT_EQ(validate(plan).error().message, "sync_taps: there is no step 2; the plan has 2");
  plan.sync_taps = {"@1"};
  EXPECT_EQ(validate(plan).error().message, "a glob of sync_taps is empty");
  plan.sync_taps = {"embed"};
  plan.sync = Sync::lazy;
  EXPECT_EQ(validate(plan).error().message, "sync_taps are given, but lazy evaluation acts after none");
}

}  // namespace
}  // namespace culprit
