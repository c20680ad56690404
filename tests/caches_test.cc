// Every kind of cache on a whole engine: as it is, with a draft, restored, and behind a reused prefix. The audit says that each slot holds what it
// must; a planted fault says that it looked. Built once for each engine: CULPRIT_TEST_ENGINE.
#include <gtest/gtest.h>

#include <algorithm>

#include "audit/weights.h"
#include "base/test_dir.h"
#include "decode/model.h"
#include "installed.h"
#include "locate/explore.h"

namespace culprit {
namespace {

/// Five tokens in three rows: room for a draft of one, and for another sequence of five.
constexpr const char* kCaches[] = {"concat",
                                   "padded",
                                   "rotating:size=6,keep=1",
                                   "sink_window:sink=1,window=6",
                                   "quantized:bits=8,group=32",
                                   "quantized:bits=8,group=64",
                                   "quantized:bits=4,group=32",
                                   "quantized:bits=2,group=64"};

class Caches : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    auto engine = installed().engine(CULPRIT_TEST_ENGINE);
    if (!engine) CULPRIT_NOT_INSTALLED(to_string(engine.error()));
    RandomModel random{.facts = tiny_llama_facts(), .seed = 3};
    random.facts.layers = 2;
    random.facts.head_channels = random.facts.rope.dims = 64;
    ASSERT_TRUE(write_random_model(dir_ / "model", random));
    model_.emplace(*Model::open(dir_ / "model"));
    weights_.emplace(*model_, GetParam());
    session_ = *Session::start(*engine, dir_ / "work", ledger_);
    ASSERT_TRUE(session_->load({.model = dir_ / "model", .dtype = GetParam()}));
  }

  RunPlan plan(const char* cache) const {
    RunPlan plan;
    plan.sequences = random_sequences(3, 5, model_->facts().vocabulary, 11);
    plan.position_base = 257;
    plan.chunks = {2, 1, 1, 1};
    plan.cache = cache;
    return plan;
  }
  RunPlan drafted(const char* cache) const {
    auto drafted = plan(cache);
    drafted.drafts = {{.step = 1, .tokens = {{7}, {8}, {9}}}};
    return drafted;
  }
  RunPlan restored(const char* cache) const {
    auto restored = drafted(cache);
    restored.restore_after = {0, 1, 2};
    return restored;
  }
  RunPlan reused(const char* cache) const {
    auto reused = plan(cache);
    reused.chunks = {1, 2};
    reused.reuse = Reuse{.common = 2, .tokens = {{7, 17, 27}, {8, 18, 28}, {9, 19, 29}}, .chunks = {3, 1, 1}};
    return reused;
  }
  AuditedRun audited(const RunPlan& plan) {
    auto run = run_and_audit(*session_, *model_, *weights_, {.name = "arm", .what = "", .plan = plan, .needs_op = "", .needs_variant = ""},
                             "test");
    if (!run) throw std::runtime_error(to_string(run.error()));
    return *std::move(run);
  }
  /// The caches' entries with this judgement; every one of them must have been judged.
  std::ptrdiff_t caches_judged(const AuditedRun& run, Judgement judgement) {
    const auto is_cache = [&](const OpAudit& op) {
      return model_->graph().nodes()[static_cast<std::size_t>(op.node)].op == Op::cache_write;
    };
    EXPECT_GT(std::ranges::count_if(run.report.ops, is_cache), 0);
    return std::ranges::count_if(run.report.ops, [&](const OpAudit& op) { return is_cache(op) && op.judgement == judgement; });
  }

  TestDir dir_;
  Ledger ledger_;
  std::optional<Model> model_;
  std::optional<ModelWeights> weights_;
  std::unique_ptr<Session> session_;
};

TEST_P(Caches, HoldWhatTheyMustHoweverTheyAreTreated) {
  for (const auto* cache : kCaches)
    for (const auto& plan : {plan(cache), drafted(cache), restored(cache), reused(cache)}) {
      ASSERT_TRUE(validate(plan)) << cache << ": " << to_string(validate(plan).error());
      const auto run = audited(plan);
      for (const auto& op : run.report.ops)
        EXPECT_NE(op.judgement, Judgement::corruption) << model_->graph().nodes()[static_cast<std::size_t>(op.node)].output << " at step "
                                                       << op.step << ", " << to_json(plan).dump() << ": " << op.reason;
      EXPECT_EQ(caches_judged(run, Judgement::within), 4 * steps_of(plan)) << to_json(plan).dump();
    }
}

TEST_P(Caches, ShowADraftOrAnotherSequenceThatStays) {
  for (const auto* cache : kCaches)
    for (auto plan : {drafted(cache), restored(cache), reused(cache)}) {
      plan.faults = {*FaultSpec::parse("F23")};
      EXPECT_GT(caches_judged(audited(plan), Judgement::corruption), 0) << to_json(plan).dump();
    }
}

TEST_P(Caches, AreRefusedWhereTheyCannotGoBack) {
  auto plan = reused("rotating:size=4");
  EXPECT_EQ(session_->run(plan, "test").error().id, "not-supported");
  plan = this->plan("quantized:bits=8,group=128");
  EXPECT_EQ(session_->run(plan, "test").error().id, "not-supported") << "heads of 64 channels";
}

INSTANTIATE_TEST_SUITE_P(DTypes, Caches, testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

}  // namespace
}  // namespace culprit
