// Runs made ahead on a second process: they are those that the first would have made, and what fails there is left to it.
#include "locate/runs_ahead.h"

#include <gtest/gtest.h>

#include "base/test_dir.h"
#include "decode/model.h"
#include "installed.h"
#include "locate/session.h"

namespace culprit {
namespace {

using namespace std::chrono_literals;

class Ahead : public testing::Test {
 protected:
  void SetUp() override {
    engine_ = *installed().engine("ref");
    ASSERT_TRUE(write_random_model(dir_ / "model", {.facts = tiny_llama_facts(), .seed = 7}));
    load_.model = dir_ / "model";
  }
  static RunPlan plan_of(int tokens) {
    RunPlan plan;
    plan.sequences = {std::vector<int>(static_cast<std::size_t>(tokens), tokens)};
    plan.chunks = {tokens};
    return plan;
  }
  TestDir dir_;
  EngineInfo engine_;
  LoadPlan load_;
  RunsAhead::Limits limits_{.start = 20s, .load = 20s, .run = 20s};
};

TEST_F(Ahead, EachRunIsTheOneThatTheFirstProcessMakes) {
  std::vector<RunsAhead::Wanted> wanted;
  for (int tokens = 1; tokens < 8; ++tokens) wanted.push_back({std::to_string(tokens), plan_of(tokens)});
  RunsAhead ahead(engine_, dir_ / "ahead", load_, wanted, limits_);
  Ledger ledger;
  auto session = Session::start(engine_, dir_ / "work", ledger);
  ASSERT_TRUE(session) << to_string(session.error());
  ASSERT_TRUE((*session)->load(load_));
  int made = 0;
  for (int tokens = 1; tokens < 8; ++tokens) {
    const auto right = (*session)->run(plan_of(tokens), "a run");
    ASSERT_TRUE(right);
    const auto done = ahead.take(std::to_string(tokens));
    if (!done) continue;  // not begun before it was asked for
    ++made;
    const auto trace = Trace::open(done->trace);
    ASSERT_TRUE(trace && trace->complete());
    ASSERT_EQ(trace->records().size(), right->trace->records().size());
    for (std::size_t i = 0; i < trace->records().size(); ++i) EXPECT_EQ(trace->records()[i].hash, right->trace->records()[i].hash);
  }
  EXPECT_FALSE(ahead.take("1"));  // each is given once
  EXPECT_FALSE(ahead.take("another"));
  RecordProperty("made", made);
}

TEST_F(Ahead, BeginsAtTheLast) {
  RunsAhead ahead(engine_, dir_ / "ahead", load_, {{"first", plan_of(2)}, {"last", plan_of(3)}}, limits_);
  std::this_thread::sleep_for(2s);  // far more than both take
  EXPECT_TRUE(std::filesystem::exists(dir_ / "ahead" / "ahead-002"));
  EXPECT_TRUE(ahead.take("last"));
  EXPECT_TRUE(ahead.take("first"));
}

TEST_F(Ahead, WhatFailsIsLeftToTheFirstProcess) {
  auto bad = plan_of(2);
  bad.variants["rope"] = "no such";
  load_.model = dir_ / "model";
  {
    RunsAhead ahead(engine_, dir_ / "ahead", load_, {{"good", plan_of(2)}, {"bad", bad}}, limits_);
    std::this_thread::sleep_for(2s);
    EXPECT_FALSE(ahead.take("bad"));
    EXPECT_TRUE(ahead.take("good"));
  }
  load_.model = dir_ / "none";
  RunsAhead no_model(engine_, dir_ / "ahead", load_, {{"good", plan_of(2)}}, limits_);
  std::this_thread::sleep_for(1s);
  EXPECT_FALSE(no_model.take("good"));
  engine_.argv = {"/nonexistent"};
  load_.model = dir_ / "model";
  RunsAhead no_engine(engine_, dir_ / "ahead", load_, {{"good", plan_of(2)}}, limits_);
  EXPECT_FALSE(no_engine.take("good"));
}

}  // namespace
}  // namespace culprit
