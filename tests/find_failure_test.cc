// An engine that fails in the middle of a run ends `find` in a verdict of its own: it says what happened, where, and what still stands.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "audit/audit.h"
#include "audit/weights.h"
#include "base/file.h"
#include "base/test_dir.h"
#include "decode/model.h"
#include "decode/model_weights.h"
#include "format/gguf_builder.h"
#include "locate/find.h"
#include "report/text.h"
#include "trace/trace.h"

namespace culprit {
namespace {

/// A llama whose matrices are Q4_1 blocks with nibbles that a shift of two bytes changes.
void write_q4_1_model(const std::filesystem::path& file) {
  constexpr std::uint32_t kF32 = 0, kQ4_1 = 3;
  auto facts = tiny_llama_facts();
  facts.hidden = 64;
  facts.mlp_hidden = 96;
  facts.heads = 8;
  facts.kv_heads = 4;
  facts.layers = 2;
  GgufBuilder builder;
  const auto u32 = [&](std::string_view key, int value) { builder.u32(key, static_cast<std::uint32_t>(value)); };
  builder.text("general.architecture", "llama");
  u32("llama.block_count", facts.layers);
  u32("llama.embedding_length", facts.hidden);
  u32("llama.feed_forward_length", facts.mlp_hidden);
  u32("llama.attention.head_count", facts.heads);
  u32("llama.attention.head_count_kv", facts.kv_heads);
  u32("llama.rope.dimension_count", facts.rope.dims);
  u32("llama.context_length", facts.context);
  builder.f32("llama.attention.layer_norm_rms_epsilon", 1e-6F).f32("llama.rope.freq_base", 100000);
  std::mt19937 random(1);
  for (const auto& spec : model_weights(Graph(facts))) {
    std::int64_t count = 1;
    for (const auto n : spec.shape) count *= n;
    std::string data;
    if (spec.shape.size() == 1) {
      for (std::int64_t i = 0; i < count; ++i) data += raw(1.0F);
    } else {
      for (std::int64_t block = 0; block < count / 32; ++block) {
        data += raw<std::uint16_t>(0x2400) + raw<std::uint16_t>(0xac00);  // scale 1/64, minimum -1/16
        for (int i = 0; i < 16; ++i) data += static_cast<char>(random() & 0xff);
      }
    }
    builder.tensor(spec.gguf, {spec.shape.rbegin(), spec.shape.rend()}, spec.shape.size() == 1 ? kF32 : kQ4_1, data);
  }
  ASSERT_TRUE(write_file_whole(file, builder.bytes()));
}

class FindOnFailingEngine : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(write_random_model(dir_ / "model", {.facts = tiny_llama_facts(), .seed = 1})); }

  Result<Verdict> find_on(std::vector<std::string> argv, const std::vector<std::string>& faults = {}) {
    FindOptions options;
    options.engine.name = "ref";
    options.engine.argv = std::move(argv);
    options.model = dir_ / model_;
    options.model_name = "tiny";
    options.work = dir_ / "work";
    options.timeout = timeout_;
    options.dtype = dtype_;
    for (const auto& fault : faults) options.faults.push_back(*FaultSpec::parse(fault));
    return find(options);
  }
  /// The verdict on an engine that fails as `how` says in step `step` of the arm `where`.
  Verdict failure(const std::string& how, const std::string& where, int step, const std::vector<std::string>& faults = {}) {
    if (how == "hang") timeout_ = std::chrono::seconds(2);
    auto verdict = find_on({CULPRIT_FAILING_ENGINE, how, where, std::to_string(step)}, faults);
    if (!verdict) {
      ADD_FAILURE() << to_string(verdict.error());
      return {};
    }
    EXPECT_EQ(verdict->status, Status::engine_failure) << to_text(*verdict);
    EXPECT_EQ(verdict->exit_code(), 4);
    if (verdict->failure) return *std::move(verdict);
    ADD_FAILURE() << to_text(*verdict);
    return {};
  }

  TestDir dir_;
  std::chrono::seconds timeout_{60};
  DType dtype_ = DType::f32;
  const char* model_ = "model";
};

struct Failing {
  const char* how;
  const char* error;
  const char* message;  // part of it
  int last_step;        // whole, of 0, 1 and 2; the engine fails in step 2
};
void PrintTo(const Failing& failing, std::ostream* out) { *out << failing.how; }

class Failure : public FindOnFailingEngine, public testing::WithParamInterface<Failing> {};

TEST_P(Failure, IsNamedWithItsArmAndItsLastWholeStep) {
  const auto& expected = GetParam();
  if (std::string(expected.how) == "disk-full" && !std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  const auto verdict = failure(expected.how, "batch", 2);
  ASSERT_TRUE(verdict.failure && verdict.failure->run) << to_text(verdict);
  const auto& run = *verdict.failure->run;
  EXPECT_EQ(verdict.failure->error.id, expected.error);
  EXPECT_EQ(run.arm, "batch");
  EXPECT_EQ(run.steps, 3);
  EXPECT_EQ(run.last_step, expected.last_step);
  EXPECT_EQ(run.steps_whole, expected.last_step + 1);
  EXPECT_NE(std::ranges::find(verdict.not_tested, "arm re-prefill: the engine failed before"), verdict.not_tested.end());
  for (const auto& part : {std::string(expected.error), std::string("arm 'batch'"), std::string(expected.message),
                           expected.last_step < 0 ? "before its first step" : "after step " + std::to_string(expected.last_step) + " "})
    EXPECT_NE(verdict.reason.find(part), std::string::npos) << "'" << part << "' is not in: " << verdict.reason;

  // What was found before: the arms before this one were run and audited, and none is wrong.
  EXPECT_GT(verdict.ledger.entries().size(), 10U);
  EXPECT_FALSE(verdict.audited.empty());
  EXPECT_FALSE(verdict.relations.empty());
  EXPECT_TRUE(verdict.defects.empty()) << to_text(verdict);
  EXPECT_NE(std::ranges::find(verdict.not_tested, "everything after the engine's failure"), verdict.not_tested.end());
}

TEST_P(Failure, LeavesATraceThatIsReadableUpToTheLastWholeStep) {
  const auto& expected = GetParam();
  if (std::string(expected.how) == "disk-full" && !std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  const auto verdict = failure(expected.how, "batch", 2);
  ASSERT_TRUE(verdict.failure && verdict.failure->run) << to_text(verdict);
  const auto trace = Trace::open(verdict.failure->run->trace);
  if (expected.last_step < 0) return;
  ASSERT_TRUE(trace) << to_string(trace.error());
  std::vector<int> whole;
  for (const auto& record : trace->records())
    if (trace->verify(record) && (whole.empty() || whole.back() != record.step)) whole.push_back(record.step);
  ASSERT_GT(whole.size(), static_cast<std::size_t>(expected.last_step));
  for (int step = 0; step <= expected.last_step; ++step) EXPECT_EQ(whole[static_cast<std::size_t>(step)], step);

  auto model = Model::open(dir_ / "model");
  ASSERT_TRUE(model);
  ModelWeights weights(*model, DType::f32);
  const auto reports = audit(*model, weights, {&*trace}, {});
  ASSERT_TRUE(reports) << to_string(reports.error());
  EXPECT_GT(std::ranges::count_if(reports->front().ops, [](const OpAudit& op) { return op.judgement != Judgement::not_tested; }), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, Failure,
    testing::Values(Failing{"crash", "engine-crash", "signal 11 (SIGSEGV)", 1},
                    Failing{"exit", "engine-crash", "exit code 3 before the answer to 'run'; its stderr ends: no kernel", 1},
                    Failing{"hang", "engine-hang", "no answer to 'run' within 2000 ms", 1},
                    Failing{"garbage", "engine-garbage", "falling back to the slow path", 1},
                    Failing{"error", "engine-error", "plan-invalid: the engine dislikes this plan", 1},
                    Failing{"exception", "engine-error", "bad shape", 1},
                    Failing{"truncated-values", "engine-trace", "step-000001.safetensors", 0},
                    Failing{"torn-records", "engine-trace", "taps.jsonl line", 0}, Failing{"changed-values", "engine-trace", "hash", 0},
                    Failing{"empty-answer", "engine-trace", "no such trace folder", -1},
                    Failing{"no-folder", "engine-error", "file-write", -1}, Failing{"file-size-limit", "engine-disk", "File too large", 1},
                    Failing{"disk-full", "engine-disk", "No space left on device", 1}),
    [](const auto& failing) {
      std::string name = failing.param.how;
      std::ranges::replace(name, '-', '_');
      return name;
    });

TEST_F(FindOnFailingEngine, TheFirstRunMayFailToo) {
  const auto verdict = failure("crash", "one token", 0);
  EXPECT_NE(verdict.reason.find("arm 'one token', before its first step was whole (0 of 1 steps are whole)"), std::string::npos)
      << verdict.reason;
  EXPECT_TRUE(verdict.ledger.entries().empty());
  EXPECT_TRUE(verdict.audited.empty());
}

TEST_F(FindOnFailingEngine, AnEngineMayFailOutsideOfARun) {
  for (const std::string request : {"hello", "load"}) {
    const auto verdict = failure("exit", request, 0);
    EXPECT_FALSE(verdict.failure->run);
    EXPECT_NE(verdict.reason.find("exit code 3 before the answer to '" + request + "'"), std::string::npos) << verdict.reason;
  }
  EXPECT_NE(failure("hang", "load", 0).reason.find("no answer to 'load' within 2000 ms"), std::string::npos);
}

TEST_F(FindOnFailingEngine, AHelloOfTheWrongTypesIsGarbage) {
  const auto verdict = failure("empty-answer", "hello", 0);
  EXPECT_EQ(verdict.failure->error.id, "engine-garbage") << verdict.reason;
  EXPECT_NE(verdict.reason.find("hello: rope: expected an object"), std::string::npos) << verdict.reason;
}

TEST_F(FindOnFailingEngine, WhatItDoesNotOfferIsNoFailure) {
  dtype_ = DType::i32;
  const auto verdict = find_on({CULPRIT_FAILING_ENGINE, "crash", "nowhere", "0"});
  ASSERT_TRUE(verdict) << to_string(verdict.error());
  EXPECT_EQ(verdict->status, Status::unsupported);
  EXPECT_EQ(verdict->exit_code(), 4);
  EXPECT_NE(verdict->reason.find("does not run in i32"), std::string::npos) << verdict->reason;
}

TEST_F(FindOnFailingEngine, AProofThatItDoesNotOfferLeavesTheDefectExplained) {
  const auto verdict = find_on({CULPRIT_FAILING_ENGINE, "refusal", "* + exact", "0"}, {"F05"});
  ASSERT_TRUE(verdict) << to_string(verdict.error());
  ASSERT_EQ(verdict->defects.size(), 1U);
  EXPECT_EQ(verdict->status, Status::explained) << to_text(*verdict);
  EXPECT_NE(std::ranges::find(verdict->not_tested, "the rest of the proof of rope: no kernel for this"), verdict->not_tested.end());
}

TEST_F(FindOnFailingEngine, AnEngineThatCannotStartIsAFailure) {
  const auto verdict = find_on({"/nonexistent/engine"});
  ASSERT_TRUE(verdict) << to_string(verdict.error());
  EXPECT_EQ(verdict->status, Status::engine_failure);
  EXPECT_EQ(verdict->failure->error.id, "engine-start");
}

TEST_F(FindOnFailingEngine, WhatWasFoundInTheArmsBeforeIsExplained) {
  const auto verdict = failure("crash", "re-prefill", 2, {"F05"});
  ASSERT_EQ(verdict.defects.size(), 1U) << to_text(verdict);
  EXPECT_EQ(verdict.defects[0].op, "rope");
  EXPECT_EQ(verdict.defects[0].fault, "F05");
  EXPECT_EQ(verdict.defects[0].status, Status::explained);
  EXPECT_FALSE(verdict.defects[0].sufficient);
  EXPECT_EQ(verdict.failure->run->arm, "re-prefill");
}

TEST_F(FindOnFailingEngine, AFailureInTheProofLeavesAllDefectsExplained) {
  const auto verdict = failure("crash", "* + exact", 1, {"F04:tokens=any", "F06:content=zero"});
  ASSERT_EQ(verdict.defects.size(), 2U) << to_text(verdict);
  EXPECT_EQ(verdict.defects[0].op, "cache_write");
  EXPECT_EQ(verdict.defects[1].op, "sdpa");
  for (const auto& defect : verdict.defects) {
    EXPECT_EQ(defect.status, Status::explained) << to_text(verdict);
    EXPECT_FALSE(defect.sufficient);
  }
  EXPECT_TRUE(verdict.failure->run->arm.ends_with(" + exact"));
  EXPECT_EQ(verdict.failure->run->last_step, 0);
}

TEST_F(FindOnFailingEngine, AProvedDefectStaysProvedWhenTheNextProofFails) {
  const auto verdict = failure("exit", "op", 0, {"F05"});  // the scan of RoPE alone comes after its proof
  ASSERT_EQ(verdict.defects.size(), 1U) << to_text(verdict);
  EXPECT_EQ(verdict.defects[0].status, Status::proved);
  EXPECT_FALSE(verdict.failure->run);
}

TEST_F(FindOnFailingEngine, ABrokenLoaderStaysExplainedWhenItsProofFails) {
  model_ = "q4_1.gguf";
  write_q4_1_model(dir_ / model_);
  for (const bool fails : {false, true}) {
    const auto verdict = find_on({CULPRIT_FAILING_ENGINE, "crash", fails ? "prefill" : "nowhere", "0", "with-loader"});
    ASSERT_TRUE(verdict) << to_string(verdict.error());
    ASSERT_EQ(verdict->defects.size(), 1U) << to_text(*verdict);
    EXPECT_EQ(verdict->defects[0].op, "load");
    EXPECT_EQ(verdict->defects[0].fault, "F17:q4_1_nibbles=2");
    EXPECT_EQ(verdict->defects[0].status, fails ? Status::explained : Status::proved) << to_text(*verdict);
    EXPECT_EQ(verdict->status, fails ? Status::engine_failure : Status::proved);
    EXPECT_EQ(verdict->explained, 1);
  }
}

TEST_F(FindOnFailingEngine, TheDocumentSaysIt) {
  const auto json = to_json(failure("crash", "batch", 2));
  EXPECT_EQ(json.at("verdict"), "engine_failure");
  EXPECT_EQ(json.at("exit_code"), 4);
  EXPECT_EQ(json.at("failure").at("error"), "engine-crash");
  const auto& run = json.at("failure").at("run");
  EXPECT_EQ(run.at("arm"), "batch");
  EXPECT_EQ(run.at("last_step"), 1);
  EXPECT_EQ(run.at("steps_whole"), 2);
  EXPECT_EQ(run.at("steps"), 3);
  EXPECT_TRUE(std::filesystem::is_directory(dir_ / "work" / run.at("trace").get<std::string>()));
}

}  // namespace
}  // namespace culprit
