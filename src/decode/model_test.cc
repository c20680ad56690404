#include "decode/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/file.h"
#include "base/test_dir.h"
#include "decode/architecture.h"
#include "decode/facts_json.h"
#include "decode/model_weights.h"
#include "decode/ops.h"
#include "format/gguf_builder.h"
#include "format/safetensors.h"

namespace culprit {
namespace {

/// What to change in a GGUF of the tiny llama.
struct Change {
  std::string skip_tensor = {};
  std::string reshape_tensor = {};  // gets a row of 7 elements
  std::string skip_key = {};
  std::vector<float> rope_factors = {};
  std::string rope_scaling = {};
  std::string extra_tensor = {};
  std::string architecture = "llama";
  std::uint32_t layers = 2;
};

GgufBuilder tiny_gguf(const Facts& facts, const Change& change = {}) {
  GgufBuilder builder;
  const auto u32 = [&](const std::string& key, int value) {
    if (key != change.skip_key) builder.u32(key, static_cast<std::uint32_t>(value));
  };
  builder.text("general.architecture", change.architecture);
  u32("llama.block_count", static_cast<int>(change.layers));
  u32("llama.embedding_length", facts.hidden);
  u32("llama.feed_forward_length", facts.mlp_hidden);
  u32("llama.attention.head_count", facts.heads);
  u32("llama.attention.head_count_kv", facts.kv_heads);
  u32("llama.rope.dimension_count", facts.rope.dims);
  u32("llama.context_length", facts.context);
  builder.f32("llama.attention.layer_norm_rms_epsilon", 1e-6f).f32("llama.rope.freq_base", 100000);
  if (!change.rope_scaling.empty()) builder.text("llama.rope.scaling.type", change.rope_scaling).f32("llama.rope.scaling.factor", 4);
  const auto zeros = [](std::int64_t count) { return std::string(static_cast<std::size_t>(count) * 4, '\0'); };
  for (const auto& spec : model_weights(Graph(facts))) {
    if (spec.gguf == change.skip_tensor) continue;
    std::vector<std::uint64_t> shape(spec.shape.rbegin(), spec.shape.rend());
    if (spec.gguf == change.reshape_tensor) shape[0] = 7;
    std::int64_t count = 1;
    for (const auto n : shape) count *= static_cast<std::int64_t>(n);
    builder.tensor(spec.gguf, shape, 0, zeros(count));
  }
  if (!change.rope_factors.empty()) {
    const auto& factors = change.rope_factors;
    builder.tensor("rope_freqs.weight", {factors.size()}, 0, {reinterpret_cast<const char*>(factors.data()), factors.size() * 4});
  }
  if (!change.extra_tensor.empty()) builder.tensor(change.extra_tensor, {4}, 0, zeros(4));
  return builder;
}

Facts gguf_facts() {
  auto facts = tiny_llama_facts();
  facts.layers = 2;
  return facts;
}

Result<Model> open_with(const TestDir& dir, const Facts& facts, const Change& change = {}) {
  std::ofstream(dir / "m.gguf", std::ios::binary) << tiny_gguf(facts, change).bytes();
  return Model::open(dir / "m.gguf");
}

TEST(GgufModel, HasTheFactsOfItsKeys) {
  const TestDir dir;
  for (const bool tied : {false, true}) {
    auto facts = gguf_facts();
    facts.tied_head = tied;
    const auto model = open_with(dir, facts);
    ASSERT_TRUE(model) << to_string(model.error());
    const auto& actual = model->facts();
    EXPECT_EQ(model->kind(), "gguf");
    EXPECT_EQ(actual.layers, 2);
    EXPECT_EQ(actual.hidden, 48);
    EXPECT_EQ(actual.heads, 6);
    EXPECT_EQ(actual.kv_heads, 3);
    EXPECT_EQ(actual.head_channels, 8);
    EXPECT_EQ(actual.mlp_hidden, 80);
    EXPECT_EQ(actual.vocabulary, 97);
    EXPECT_EQ(actual.context, 8192);
    EXPECT_EQ(actual.norm_epsilon, static_cast<double>(1e-6f));
    EXPECT_EQ(actual.tied_head, tied);
    EXPECT_EQ(actual.rope.dims, 8);
    EXPECT_EQ(actual.rope.base, 100000);
    EXPECT_EQ(actual.rope.pairing, RopePairing::interleaved);
    EXPECT_EQ(actual.rope.scaling, RopeScaling::none);
    EXPECT_EQ(model->weight_names().front(), "w.embed");
    EXPECT_EQ(model->weight_names().back(), tied ? "w.final_norm" : "w.logits");
    EXPECT_EQ(model->weight_names().size(), (tied ? 2u : 3u) + 9 * 2);
    for (const auto& name : model->weight_names()) {
      EXPECT_EQ(model->canonical_name(model->checkpoint_name(name)), name);
      EXPECT_TRUE(model->weight(name)) << name;
    }
    EXPECT_EQ(model->checkpoint_name("w.layers.1.mlp_down"), "blk.1.ffn_down.weight");
    EXPECT_EQ(model->canonical_name("blk.0.attn_output.weight"), "w.layers.0.attn_out");
    EXPECT_EQ(model->canonical_name("absent"), "");
    EXPECT_EQ(model->weight("w.absent").error().id, "model-unsupported");
  }
}

TEST(GgufModel, NamesTheTensorAndBothShapes) {
  const TestDir dir;
  for (const auto& spec : model_weights(Graph(gguf_facts()))) {
    if (spec.gguf != "output.weight") {  // without it the head is tied
      const auto without = open_with(dir, gguf_facts(), {.skip_tensor = spec.gguf});
      ASSERT_FALSE(without) << spec.gguf;
      EXPECT_EQ(without.error().id, "model-unsupported");
      EXPECT_NE(without.error().message.find(spec.gguf), std::string::npos) << to_string(without.error());
    }
    const auto reshaped = open_with(dir, gguf_facts(), {.reshape_tensor = spec.gguf});
    ASSERT_FALSE(reshaped) << spec.gguf;
    auto actual = spec.shape;
    actual.back() = 7;
    EXPECT_EQ(reshaped.error().id, "model-unsupported");
    EXPECT_NE(reshaped.error().message.find("expected shape " + to_string(spec.shape) + ", got " + to_string(actual)), std::string::npos)
        << to_string(reshaped.error());
  }
}

TEST(GgufModel, RefusesWhatItWouldMisread) {
  const TestDir dir;
  const auto error_of = [&](const Change& change) { return open_with(dir, gguf_facts(), change).error(); };
  EXPECT_EQ(error_of({.architecture = "gpt2"}).id, "model-unsupported");
  EXPECT_EQ(error_of({.architecture = "\x1b[31m"}).message.find('\x1b'), std::string::npos);
  EXPECT_EQ(error_of({.layers = 3}).id, "model-unsupported");  // a third layer's tensors are absent
  EXPECT_EQ(error_of({.layers = 1}).id, "model-unsupported");  // the second layer's tensors have no place
  EXPECT_EQ(error_of({.layers = 0}).id, "model-unsupported");
  EXPECT_EQ(error_of({.layers = 0x7fffffff}).id, "model-unsupported");  // and no graph of that length is built
  EXPECT_EQ(error_of({.extra_tensor = "blk.0.attn_q.bias"}).id, "model-unsupported");
  EXPECT_EQ(error_of({.rope_scaling = "yarn"}).id, "model-unsupported");
  EXPECT_EQ(error_of({.skip_key = "llama.embedding_length"}).id, "gguf-invalid");
  EXPECT_EQ(error_of({.skip_key = "llama.block_count"}).id, "gguf-invalid");
  EXPECT_EQ(Model::open(dir / "absent.gguf").error().id, "model-missing");
  EXPECT_FALSE(Model::open(dir.path()));  // a folder without a model
}

/// A GGUF of the architecture's tiny model, every key under its name.
GgufBuilder tiny_gguf_of(const Architecture& architecture, const Facts& facts) {
  GgufBuilder builder;
  const auto key = [&](std::string_view name) { return std::string(architecture.name) + "." + std::string(name); };
  const auto u32 = [&](std::string_view name, int value) { builder.u32(key(name), static_cast<std::uint32_t>(value)); };
  builder.text("general.architecture", architecture.name);
  u32("block_count", facts.layers);
  u32("embedding_length", facts.hidden);
  u32("feed_forward_length", facts.mlp_hidden);
  u32("attention.head_count", facts.heads);
  u32("attention.head_count_kv", facts.kv_heads);
  u32("attention.key_length", facts.head_channels);
  u32("attention.value_length", facts.head_channels);
  u32("context_length", facts.context);
  if (facts.window > 0) u32("attention.sliding_window", facts.window);
  builder.f32(key("attention.layer_norm_rms_epsilon"), 1e-6f).f32(key("rope.freq_base"), 1e6f);
  if (facts.rope.scaling == RopeScaling::linear)
    builder.text(key("rope.scaling.type"), "linear").f32(key("rope.scaling.factor"), static_cast<float>(facts.rope.factor));
  for (const auto& spec : model_weights(Graph(facts))) {
    const std::vector<std::uint64_t> shape(spec.shape.rbegin(), spec.shape.rend());
    builder.tensor(spec.gguf, shape, 0, std::string(static_cast<std::size_t>(element_count(spec.shape)) * 4, '\0'));
  }
  return builder;
}

TEST(GgufModel, ReadsEveryArchitecture) {
  const TestDir dir;
  for (const auto* architecture : architectures()) {
    auto facts = architecture->tiny();
    const auto open = [&] {
      std::ofstream(dir / "m.gguf", std::ios::binary) << tiny_gguf_of(*architecture, facts).bytes();
      return Model::open(dir / "m.gguf");
    };
    if (architecture->read_gguf == nullptr) continue;
    const auto model = open();
    ASSERT_TRUE(model) << architecture->name << ": " << to_string(model.error());
    // What the file does not say, or says in f32.
    facts.norm_epsilon = static_cast<double>(1e-6f);
    facts.norm_unit_offset = false;  // added already
    facts.rope.base = 1e6;
    if (architecture->name == "llama") facts.rope.pairing = RopePairing::interleaved;
    if (architecture->name == "gemma3") {
      facts.full_every = 6;
      facts.query_pre_attn_scalar = facts.head_channels;
    }
    EXPECT_EQ(to_json(model->facts()), to_json(facts)) << architecture->name;
  }
  // Mistral's GGUF form is a llama.
  std::ofstream(dir / "m.gguf", std::ios::binary) << GgufBuilder().text("general.architecture", "mistral").bytes();
  EXPECT_EQ(Model::open(dir / "m.gguf").error().id, "model-unsupported");
}

TEST(GgufModel, ReadsRopeScaling) {
  const TestDir dir;
  const auto linear = open_with(dir, gguf_facts(), {.rope_scaling = "linear"});
  ASSERT_TRUE(linear) << to_string(linear.error());
  EXPECT_EQ(linear->facts().rope.scaling, RopeScaling::linear);
  EXPECT_EQ(linear->facts().rope.factor, 4);
  EXPECT_EQ(open_with(dir, gguf_facts(), {.rope_scaling = "none"})->facts().rope.scaling, RopeScaling::none);

  // Llama 3.1's divisors, as converters write them; 48 pairs so that all three branches occur.
  auto facts = gguf_facts();
  facts.heads = facts.kv_heads = 1;
  facts.hidden = facts.head_channels = facts.rope.dims = 96;
  auto scaled = facts.rope;
  scaled.base = 100000;
  const auto plain_frequencies = rope_frequencies(scaled);
  scaled.scaling = RopeScaling::llama3;
  scaled.factor = 32;
  const auto frequencies = rope_frequencies(scaled);
  Change change;
  for (std::size_t i = 0; i < frequencies.size(); ++i)
    change.rope_factors.push_back(static_cast<float>(plain_frequencies[i] / frequencies[i]));
  const auto llama3 = open_with(dir, facts, change);
  ASSERT_TRUE(llama3) << to_string(llama3.error());
  EXPECT_EQ(llama3->facts().rope.scaling, RopeScaling::llama3);
  EXPECT_EQ(llama3->facts().rope.factor, 32);
  EXPECT_EQ(rope_frequencies(llama3->facts().rope), frequencies);
  auto other = change;
  other.rope_factors[30] *= 1.001f;
  EXPECT_EQ(open_with(dir, facts, other).error().id, "model-unsupported");
  other.rope_factors.pop_back();
  EXPECT_EQ(open_with(dir, facts, other).error().id, "model-unsupported");
  facts.rope.dims = 0x7ffffffe;  // no table of 8 GiB is made to find that out
  EXPECT_EQ(open_with(dir, facts, other).error().id, "model-unsupported");
}

TEST(FolderModel, GivesBackWhatWasWritten) {
  const TestDir dir;
  RandomModel spec{tiny_llama_facts(), 5};
  spec.facts.rope.pairing = RopePairing::interleaved;
  ASSERT_TRUE(write_random_model(dir / "m", spec));
  const auto model = Model::open(dir / "m");
  ASSERT_TRUE(model) << to_string(model.error());
  EXPECT_EQ(model->kind(), "folder");
  EXPECT_EQ(model->facts().rope.pairing, RopePairing::interleaved);
  EXPECT_EQ(model->weight_names().size(), 3u + 9 * 3);
  EXPECT_EQ(model->checkpoint_name("w.layers.0.q"), "w.layers.0.q");
  for (const auto& weight : model_weights(model->graph())) EXPECT_EQ(model->weight(weight.canonical)->shape(), weight.shape);

  ASSERT_TRUE(write_file_whole(dir / "m" / "model.json", std::string_view("{}")));
  EXPECT_EQ(Model::open(dir / "m").error().id, "json-invalid");
  EXPECT_EQ(Model::open(dir / "m").error().where, (dir / "m" / "model.json").string());
}

TEST(FolderModel, MissingOrMisshapenTensorsAreNamed) {
  const TestDir dir;
  ASSERT_TRUE(write_random_model(dir / "m", {tiny_llama_facts(), 5}));
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& weight : model_weights(Graph(tiny_llama_facts())))
    tensors.emplace_back(weight.canonical, Tensor::zeros(DType::f32, weight.shape));
  auto fewer = tensors;
  fewer.erase(fewer.begin() + 4);
  ASSERT_TRUE(write_safetensors(dir / "m" / "model.safetensors", fewer));
  EXPECT_NE(Model::open(dir / "m").error().message.find(tensors[4].first), std::string::npos);
  auto misshapen = tensors;
  misshapen[4].second = Tensor::zeros(DType::f32, {24, 47});
  ASSERT_TRUE(write_safetensors(dir / "m" / "model.safetensors", misshapen));
  EXPECT_NE(Model::open(dir / "m").error().message.find("got [24, 47]"), std::string::npos);
  auto integers = tensors;
  integers[4].second = Tensor::zeros(DType::i32, tensors[4].second.shape());
  ASSERT_TRUE(write_safetensors(dir / "m" / "model.safetensors", integers));
  EXPECT_NE(Model::open(dir / "m").error().message.find("i32"), std::string::npos);
}

// The bits of a seed are part of what a report says: they must be the same everywhere and for ever.
TEST(RandomModel, IsTheSameEverywhere) {
  const TestDir dir;
  ASSERT_TRUE(write_random_model(dir / "m", {tiny_llama_facts(), 1}));
  const auto model = Model::open(dir / "m").value();
  EXPECT_EQ(model.weight("w.layers.1.q")->hash_f32(), "23335a6e1491c3f6ab0c84fff4200d52");
  EXPECT_EQ(model.weight("w.final_norm")->hash_f32(), "e2d89c8b352f19549d67432ba72d73b8");
  ASSERT_TRUE(write_random_model(dir / "n", {tiny_llama_facts(), 2}));
  EXPECT_NE(Model::open(dir / "n")->weight("w.layers.1.q")->hash_f32(), model.weight("w.layers.1.q")->hash_f32());
}

TEST(RandomModel, HasTheStatedSpread) {
  const TestDir dir;
  ASSERT_TRUE(write_random_model(dir / "m", {tiny_llama_facts(), 3}));
  const auto model = Model::open(dir / "m").value();
  for (const char* name : {"w.layers.0.mlp_up", "w.layers.2.mlp_down", "w.logits"}) {
    const auto weight = model.weight(name)->to_f32();
    double sum = 0, squares = 0;
    for (const double value : weight.values()) sum += value, squares += value * value;
    const auto count = static_cast<double>(weight.count());
    const auto fan_in = static_cast<double>(weight.dim(1));
    // Five standard errors of a mean, and of a variance (that of a normal's square is 2).
    EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count * fan_in)) << name;
    EXPECT_NEAR(squares / count * fan_in, 1, 5 * std::sqrt(2 / count)) << name;
  }
}

}  // namespace
}  // namespace culprit
