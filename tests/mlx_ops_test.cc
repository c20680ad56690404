// Every op variant of each installed MLX release, driven through the protocol without a model and held against the op in float64 within the
// audit's bounds. The engines come from the home that CULPRIT_HOME names; without one the tests are skipped.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "audit/bounded.h"
#include "base/test_dir.h"
#include "decode/facts_json.h"
#include "decode/model.h"
#include "engine/driver_process.h"
#include "engine/plan.h"
#include "format/safetensors.h"
#include "installed.h"

namespace culprit {
namespace {
namespace fs = std::filesystem;
constexpr std::chrono::seconds kLimit(120);

std::vector<EngineInfo> mlx_engines() {
  std::vector<EngineInfo> engines;
  const auto home = installed();
  for (const auto& listed : home.engines())
    if (listed.name == "mlx") {
      auto engine = home.engine(listed.spec());  // stale or changed engines must fail, not be passed over
      EXPECT_TRUE(engine) << to_string(engine.error());
      if (engine) engines.push_back(std::move(*engine));
    }
  return engines;
}

/// RoPE's positions are computed in the input's dtype up to 0.29.4 (ml-explore/mlx 2791).
bool has_narrow_rope(const std::string& version) { return version == "0.29.3" || version == "0.29.4"; }

Facts test_facts() {
  auto facts = tiny_llama_facts();
  facts.head_channels = 16;
  facts.rope.dims = 16;
  facts.rope.base = 100000;
  return facts;
}

struct OpCase {
  std::string name;
  Op op = Op::add;
  std::string variant;
  Facts facts = test_facts();
  std::vector<Shape> inputs;
  Shape weight;                      // empty: none
  std::vector<std::int64_t> offset;  // rope
  int rank = 4;                      // rope
  bool causal = false;               // sdpa
  std::vector<std::vector<int>> tokens;
  Node parameters = {};  // unit_offset, rope_local, window, factor, heads_out, unscaled, head
  bool bias = false;     // linear, delta_decay
};

OpCase plain_case(std::string name, Op op, std::string variant, std::vector<Shape> inputs, Shape weight = {}) {
  return {.name = std::move(name),
          .op = op,
          .variant = std::move(variant),
          .inputs = std::move(inputs),
          .weight = std::move(weight),
          .offset = {},
          .tokens = {}};
}

void add_expert_cases(std::vector<OpCase>& all) {
  const auto add = [&](OpCase test) {
    test.parameters.experts = 3;
    all.push_back(std::move(test));
  };
  for (const bool normalised : {false, true}) {
    add(plain_case(normalised ? "route, normalised" : "route", Op::route, "eager", {{2, 5, 12}}));
    all.back().parameters.normalised = normalised;
  }
  add(plain_case("expert_linear of tokens", Op::expert_linear, "gathered", {{2, 5, 48}, {2, 5, 12}}, {12, 40, 48}));
  add(plain_case("expert_linear of one token", Op::expert_linear, "gathered", {{1, 1, 48}, {1, 1, 12}}, {12, 40, 48}));
  add(plain_case("expert_linear of choices", Op::expert_linear, "gathered", {{2, 3, 5, 40}, {2, 5, 12}}, {12, 48, 40}));
  add(plain_case("expert_sum", Op::expert_sum, "composed", {{2, 3, 5, 48}, {2, 5, 12}}));
}

void add_delta_cases(std::vector<OpCase>& all) {
  all.push_back(plain_case("slice", Op::slice, "eager", {{2, 6, 3, 16}}));
  all.back().parameters.begin = 5;
  all.back().parameters.channels = 8;
  all.push_back(plain_case("slice into heads", Op::slice, "eager", {{2, 1, 3, 48}}));
  all.back().parameters.begin = 12;
  all.back().parameters.channels = 30;
  all.back().parameters.heads_out = 5;
  all.push_back(plain_case("multiply", Op::multiply, "eager", {{2, 6, 3, 16}, {2, 6, 3, 16}}));
  all.push_back(plain_case("multiply by one channel", Op::multiply, "eager", {{2, 3, 48}, {2, 3, 1}}));
  all.push_back(plain_case("sigmoid", Op::sigmoid, "eager", {{2, 3, 800}}));
  all.push_back(plain_case("silu", Op::silu, "composed", {{2, 1, 3, 800}}));
  all.push_back(plain_case("swiglu, precise", Op::swiglu, "composed", {{2, 6, 3, 100}, {2, 6, 3, 100}}));
  all.back().parameters.precise = true;
  all.push_back(plain_case("l2_norm", Op::l2_norm, "fused", {{2, 6, 3, 24}}));
  all.back().parameters.factor = 1 / std::sqrt(24.0);
  all.push_back(plain_case("delta_decay", Op::delta_decay, "composed", {{2, 5, 32}}, {32}));
  all.back().bias = true;
  all.push_back(plain_case("delta_out", Op::delta_out, "composed", {{2, 3, 4, 16}, {2, 6, 4, 12 * 16}}));
}

std::vector<OpCase> cases() {
  std::vector<OpCase> all;
  all.push_back({.name = "embedding",
                 .op = Op::embedding,
                 .variant = "take",
                 .inputs = {},
                 .weight = {97, 48},
                 .offset = {},
                 .tokens = {{3, 96, 0}, {5, 5, 1}}});
  for (const std::string variant : {"fused", "composed"}) {
    all.push_back(
        {.name = "rms_norm", .op = Op::rms_norm, .variant = variant, .inputs = {{2, 3, 48}}, .weight = {48}, .offset = {}, .tokens = {}});
    for (const int tokens : {1, 3})
      for (const bool causal : {false, true})
        all.push_back({.name = fmt::format("sdpa tokens {} causal {}", tokens, causal),
                       .op = Op::sdpa,
                       .variant = variant,
                       .inputs = {{2, 6, tokens, 16}, {2, 3, 7, 16}, {2, 3, 7, 16}},
                       .weight = {},
                       .offset = {},
                       .causal = causal,
                       .tokens = {}});
    for (const auto pairing : {RopePairing::half, RopePairing::interleaved})
      for (const auto scaling : {RopeScaling::none, RopeScaling::linear, RopeScaling::llama3})
        for (const int dims : {16, 8})
          for (const int rank : {4, 3})
            for (const int tokens : {1, 3})
              for (const auto& offset : {std::vector<std::int64_t>{4099}, std::vector<std::int64_t>{5, 257, 4099}}) {
                if (rank == 3 && offset.size() > 1) continue;  // rows and heads share a dimension: no offset for each row
                OpCase rope{.name = {},
                            .op = Op::rope,
                            .variant = variant,
                            .inputs = {{3, 5, tokens, 16}},
                            .weight = {},
                            .offset = offset,
                            .rank = rank,
                            .tokens = {}};
                rope.facts.rope.pairing = pairing;
                rope.facts.rope.scaling = scaling;
                rope.facts.rope.factor = 8;
                rope.facts.rope.dims = dims;
                rope.name = fmt::format("rope pairing {} scaling {} dims {} rank {} tokens {} offsets {}", static_cast<int>(pairing),
                                        static_cast<int>(scaling), dims, rank, tokens, offset.size());
                all.push_back(std::move(rope));
              }
  }
  all.push_back({.name = "embedding as heads",
                 .op = Op::embedding,
                 .variant = "take",
                 .inputs = {},
                 .weight = {97, 48},
                 .offset = {},
                 .tokens = {{3, 96, 0}, {5, 5, 1}}});
  all.back().parameters.heads_out = 6;
  all.push_back({.name = "select_head",
                 .op = Op::select_head,
                 .variant = "view",
                 .inputs = {{2, 5, 3, 16}},
                 .weight = {},
                 .offset = {},
                 .tokens = {}});
  all.back().parameters.head = 3;
  all.push_back({.name = "scale by a weight",
                 .op = Op::scale,
                 .variant = "eager",
                 .inputs = {{2, 3, 800}},
                 .weight = {1},
                 .offset = {},
                 .tokens = {}});
  for (const std::string variant : {"fused", "composed"}) {
    all.push_back({.name = "rms_norm without a weight",
                   .op = Op::rms_norm,
                   .variant = variant,
                   .inputs = {{2, 6, 3, 16}},
                   .weight = {},
                   .offset = {},
                   .tokens = {}});
    all.back().parameters.unscaled = true;
    for (const auto& offset : {std::vector<std::int64_t>{4099}, std::vector<std::int64_t>{5, 257, 4099}}) {
      OpCase rope{.name = fmt::format("rope proportional, {} offsets", offset.size()),
                  .op = Op::rope,
                  .variant = variant,
                  .inputs = {{3, 5, 3, 16}},
                  .weight = {},
                  .offset = offset,
                  .tokens = {}};
      rope.facts.rope.scaling = RopeScaling::proportional;
      rope.facts.rope.factor = 2;
      rope.facts.rope.rotated = 6;
      all.push_back(std::move(rope));
    }
  }
  for (const std::string variant : {"dense", "reversed"})
    all.push_back(
        {.name = "linear", .op = Op::linear, .variant = variant, .inputs = {{2, 3, 48}}, .weight = {80, 48}, .offset = {}, .tokens = {}});
  for (const std::string variant : {"dense", "reversed"})
    all.push_back({.name = "linear with bias",
                   .op = Op::linear,
                   .variant = variant,
                   .inputs = {{2, 3, 48}},
                   .weight = {80, 48},
                   .offset = {},
                   .tokens = {},
                   .bias = true});
  for (const auto op : {Op::swiglu, Op::geglu})
    all.push_back({.name = std::string(name_of(op)),
                   .op = op,
                   .variant = "composed",
                   .inputs = {{2, 3, 800}, {2, 3, 800}},
                   .weight = {},
                   .offset = {},
                   .tokens = {}});
  for (const auto op : {Op::scale, Op::softcap}) {
    all.push_back({.name = std::string(name_of(op)),
                   .op = op,
                   .variant = "eager",
                   .inputs = {{2, 3, 800}},
                   .weight = {},
                   .offset = {},
                   .tokens = {}});
    all.back().parameters.factor = op == Op::scale ? std::sqrt(640.0) : 1.7;
  }
  for (const std::string variant : {"fused", "composed"}) {
    all.push_back({.name = "rms_norm over heads, weight + 1",
                   .op = Op::rms_norm,
                   .variant = variant,
                   .inputs = {{2, 6, 3, 16}},
                   .weight = {16},
                   .offset = {},
                   .tokens = {}});
    all.back().parameters.unit_offset = true;
    for (const int tokens : {1, 3})
      for (const int window : {1, 4, 7, 9}) {
        all.push_back({.name = fmt::format("sdpa tokens {} window {}", tokens, window),
                       .op = Op::sdpa,
                       .variant = variant,
                       .inputs = {{2, 6, tokens, 16}, {2, 3, 7, 16}, {2, 3, 7, 16}},
                       .weight = {},
                       .offset = {},
                       .causal = true,
                       .tokens = {}});
        all.back().parameters.window = window;
      }
    OpCase local{.name = "rope of the sliding layers",
                 .op = Op::rope,
                 .variant = variant,
                 .inputs = {{3, 5, 3, 16}},
                 .weight = {},
                 .offset = {257},
                 .tokens = {}};
    local.parameters.rope_local = true;
    local.facts.window = 4;
    local.facts.rope_local = local.facts.rope;
    local.facts.rope_local->base = 1000;
    local.facts.query_pre_attn_scalar = 24;
    all.push_back(std::move(local));
  }
  add_expert_cases(all);
  add_delta_cases(all);
  all.push_back(
      {.name = "add", .op = Op::add, .variant = "eager", .inputs = {{2, 3, 48}, {2, 3, 48}}, .weight = {}, .offset = {}, .tokens = {}});
  return all;
}

Tensor random_tensor(DType dtype, const Shape& shape, std::mt19937_64& source) {
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (auto& value : values) value = normal(source);
  return Tensor::from_values(dtype, shape, values);
}

/// Positions of the case's rows; the kit places an sdpa's tokens at the end of the slots.
Coordinates place(const OpCase& test) {
  Coordinates at;
  if (test.inputs.empty() || test.inputs[0].size() != 4) return at;
  const auto tokens = test.inputs[0][2], slots = test.op == Op::sdpa ? test.inputs[1][2] : tokens;
  for (std::int64_t row = 0; row < test.inputs[0][0]; ++row) {
    const auto first = test.offset.empty() ? slots - tokens : test.offset[test.offset.size() == 1 ? 0 : static_cast<std::size_t>(row)];
    at.sequence.push_back(static_cast<int>(row));
    auto& positions = at.position.emplace_back();
    auto& slot = at.slot.emplace_back();
    for (std::int64_t i = 0; i < tokens; ++i) positions.push_back(test.op == Op::sdpa && !test.causal ? slots - 1 : first + i);
    for (std::int64_t i = 0; i < slots; ++i) slot.push_back(first + tokens - slots + i);
  }
  return at;
}

/// Runs the case on the engine and returns the largest error / bound. `ops`: of the driver's hello.
Result<double> worst_ratio(DriverProcess& driver, const fs::path& folder, const OpCase& test, DType dtype, const Json& ops) {
  std::mt19937_64 source(20260801);
  Node node = test.parameters;
  node.op = test.op;
  node.output = test.name;
  std::vector<std::pair<std::string, Tensor>> operands;
  std::vector<Array> inputs;
  for (std::size_t i = 0; i < test.inputs.size(); ++i) {
    node.inputs.push_back(fmt::format("input.{}", i));
    operands.emplace_back(node.inputs.back(), random_tensor(dtype, test.inputs[i], source));
    inputs.push_back(to_array(operands.back().second));
  }
  NodeContext context;
  context.facts = &test.facts;
  context.dtype = dtype;
  context.tokens = test.tokens;
  context.at = place(test);
  if (!test.weight.empty()) {
    node.weight = "weight";
    context.weight = random_tensor(dtype, test.weight, source);
    operands.emplace_back("weight", context.weight);
  }
  if (test.bias) {
    node.bias = "bias";
    context.bias = random_tensor(dtype, {test.weight[0]}, source);
    operands.emplace_back("bias", context.bias);
  }
  CULPRIT_CHECK(write_safetensors(folder / "in.safetensors", operands));
  const Json fields = {{"op", name_of(test.op)},
                       {"facts", to_json(test.facts)},
                       {"variant", test.variant},
                       {"dtype", name_of(dtype)},
                       {"file", (folder / "in.safetensors").string()},
                       {"offset", test.offset},
                       {"tokens", test.tokens},
                       {"causal", test.causal},
                       {"rank", test.rank},
                       {"unit_offset", node.unit_offset},
                       {"rope_local", node.rope_local},
                       {"window", node.window},
                       {"factor", node.factor},
                       {"heads_out", node.heads_out},
                       {"unscaled", node.unscaled},
                       {"head", node.head},
                       {"begin", node.begin},
                       {"channels", node.channels},
                       {"experts", node.experts},
                       {"normalised", node.normalised},
                       {"precise", node.precise},
                       {"out", (folder / "out.safetensors").string()}};
  CULPRIT_CHECK(driver.request("op", fields, kLimit));
  CULPRIT_TRY(const auto file, Safetensors::open(folder / "out.safetensors"));
  CULPRIT_TRY(const auto output, file.tensor("output"));
  const auto made = output_dtype(node, dtype);
  if (output.dtype() != made)
    return fail("internal", fmt::format("{} gives {}, expected {}", test.name, name_of(output.dtype()), name_of(made)));
  const auto seen = to_array(output);
  const auto accumulate = ops.at(std::string(name_of(test.op))).at("arithmetic").at(test.variant).at("accumulate");
  const Arithmetic declared{.in_dtype = accumulate == "dtype", .declared = true};
  CULPRIT_TRY(const auto expected, bounded_node(node, inputs, context, made, declared, {}, &seen));
  if (output.shape() != expected.value.shape)
    return fail("internal",
                fmt::format("{} has shape {}, expected {}", test.name, to_string(output.shape()), to_string(expected.value.shape)));
  const auto actual = output.values();
  double worst = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const auto error = std::abs(actual[i] - expected.value.values[i]);
    const bool vanished = actual[i] == 0 && !expected.may_vanish.empty() && expected.may_vanish[i];
    if (error == 0 || vanished) continue;
    const auto ratio = error / expected.bound[i];
    if (!(ratio <= worst)) worst = std::isnan(ratio) ? HUGE_VAL : ratio;
  }
  return worst;
}

TEST(MlxOps, AreWithinTheAuditsBoundsInEveryRelease) {
  const auto engines = mlx_engines();
  if (engines.empty()) CULPRIT_NOT_INSTALLED("no MLX release is installed in CULPRIT_HOME");
  for (const auto& engine : engines) {
    TestDir folder;
    auto driver = DriverProcess::start({engine.argv, folder / "driver"});
    ASSERT_TRUE(driver) << to_string(driver.error());
    const auto hello = (*driver)->request("hello", {{"protocol", 1}}, kLimit);
    ASSERT_TRUE(hello) << to_string(hello.error());
    const auto said = hello->contains("hello") ? hello->at("hello") : *hello;
    EXPECT_EQ(said.at("library_sha256"), engine.library_sha256) << engine.spec() << " loaded another library than was installed";
    for (const auto dtype : {DType::f32, DType::f16, DType::bf16}) {
      int rope_outside = 0;
      for (const auto& test : cases()) {
        const auto ratio = worst_ratio(**driver, folder.path(), test, dtype, said.at("ops"));
        ASSERT_TRUE(ratio) << engine.spec() << " " << test.name << ": " << to_string(ratio.error());
        if (test.op == Op::rope && test.variant == "fused" && dtype != DType::f32 && has_narrow_rope(engine.version))
          rope_outside += *ratio > 1 ? 1 : 0;
        else
          EXPECT_LE(*ratio, 1) << engine.spec() << " " << name_of(dtype) << " " << test.variant << " " << test.name;
      }
      if (dtype != DType::f32 && has_narrow_rope(engine.version)) {
        EXPECT_GT(rope_outside, 0) << engine.spec() << ": its known defect was not seen";
      }
    }
  }
}

TEST(MlxLayouts, AnOpSeesTheStridesItIsGiven) {
  const auto engines = mlx_engines();
  if (engines.empty()) CULPRIT_NOT_INSTALLED("no MLX release is installed in CULPRIT_HOME");
  std::mt19937_64 source(7);
  for (const auto& engine : engines) {
    TestDir folder;
    auto driver = DriverProcess::start({engine.argv, folder / "driver"});
    ASSERT_TRUE(driver) << to_string(driver.error());
    // Three ways to lay the same [1, 3, 5] out: transposed, with gaps and an offset, and reversed on the last axis.
    struct Way {
      Shape strides;
      std::int64_t offset;
    };
    const auto storage = random_tensor(DType::bf16, {64}, source);
    const auto other = random_tensor(DType::bf16, {1, 3, 5}, source);
    for (const auto& way : {Way{{15, 1, 3}, 0}, Way{{60, 20, 2}, 7}, Way{{15, 5, -1}, 4}}) {
      const auto x = Tensor::wrap(std::make_shared<Tensor>(storage), storage.contiguous_bytes(),
                                  Layout{DType::bf16, {1, 3, 5}, way.strides, way.offset, 0});
      ASSERT_TRUE(x) << to_string(x.error());
      ASSERT_TRUE(write_safetensors(folder / "in", {{"input.0", storage}, {"input.1", other}}));
      const Json layout = {{"input.0", {{"shape", {1, 3, 5}}, {"strides", way.strides}, {"offset", way.offset}}}};
      const auto answer = (*driver)->request("op",
                                             {{"op", "add"},
                                              {"facts", to_json(test_facts())},
                                              {"dtype", "bf16"},
                                              {"file", (folder / "in").string()},
                                              {"layouts", layout},
                                              {"out", (folder / "out").string()}},
                                             kLimit);
      ASSERT_TRUE(answer) << to_string(answer.error());
      const auto file = Safetensors::open(folder / "out");
      ASSERT_TRUE(file) << to_string(file.error());
      const auto actual = file->tensor("output").value().values(), left = x->values(), right = other.values();
      for (std::size_t i = 0; i < actual.size(); ++i)
        EXPECT_EQ(actual[i], round_to(DType::bf16, left[i] + right[i])) << engine.spec() << " element " << i;
    }
  }
}

/// Up to 0.31.2 MLX's loader reads the nibbles of Q4_1 blocks from byte 2 instead of 4 (ml-explore/mlx 3664): exactly those tensors, and
/// exactly so.
TEST(MlxLoader, ReadsTheCheckpointAsItIsOrWithItsKnownDefect) {
  const auto engines = mlx_engines();
  if (engines.empty()) CULPRIT_NOT_INSTALLED("no MLX release is installed in CULPRIT_HOME");
  const auto path = installed().model("smollm2");
  if (!path) CULPRIT_NOT_INSTALLED("model smollm2 is not installed in CULPRIT_HOME");
  const auto model = Model::open(*path);
  ASSERT_TRUE(model) << to_string(model.error());
  std::map<std::string, std::pair<std::string, std::string>> expected;  // right, and as the defect reads it
  int q4_1 = 0;
  for (const auto& name : model->weight_names()) {
    const auto right = model->weight(name), wrong = model->weight(name, GgufReadFault{2});
    ASSERT_TRUE(right && wrong);
    expected[name] = {right->hash_f32(), wrong->hash_f32()};
    q4_1 += right->source_type == "Q4_1" ? 1 : 0;
  }
  ASSERT_GT(q4_1, 0);
  for (const auto& engine : engines) {
    TestDir folder;
    auto driver = DriverProcess::start({engine.argv, folder / "driver"});
    ASSERT_TRUE(driver) << to_string(driver.error());
    const LoadPlan plan{.model = *path, .dtype = DType::bf16, .weights = WeightSource::engine, .weight_fault = {}};
    const auto loaded = (*driver)->request("load", {{"plan", to_json(plan)}}, kLimit);
    ASSERT_TRUE(loaded) << to_string(loaded.error());
    const auto answer = (*driver)->request("weights", {{"names", {"**"}}, {"values", false}}, kLimit);
    ASSERT_TRUE(answer) << to_string(answer.error());
    int right = 0, as_defect = 0, other = 0;
    for (const auto& weight : answer->at("weights")) {
      const auto& [hash, wrong_hash] = expected.at(weight.at("name").get<std::string>());
      const auto actual = weight.at("hash").get<std::string>();
      ++(actual == hash ? right : actual == wrong_hash ? as_defect : other);
    }
    const bool fixed = engine.version.starts_with("0.32.");
    EXPECT_EQ(other, 0) << engine.spec();
    EXPECT_EQ(as_defect, fixed ? 0 : q4_1) << engine.spec();
    EXPECT_EQ(right + as_defect, static_cast<int>(expected.size())) << engine.spec();
  }
}

}  // namespace
}  // namespace culprit
