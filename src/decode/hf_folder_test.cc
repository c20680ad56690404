#include "decode/hf_folder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "base/test_dir.h"
#include "decode/architecture.h"
#include "decode/facts_json.h"
#include "decode/model.h"
#include "decode/model_weights.h"

namespace culprit {
namespace {

class HfFolder : public testing::TestWithParam<const Architecture*> {
 protected:
  void write(const Facts& facts) { ASSERT_TRUE(write_random_hf_model(folder(), {facts, 3})); }
  [[nodiscard]] std::filesystem::path folder() const { return dir_ / "m"; }
  [[nodiscard]] Json config() const { return read_json_file(folder() / "config.json").value(); }
  /// The error of the folder with `config`, or an empty one.
  Error error_with(const Json& config) {
    EXPECT_TRUE(write_file_whole(folder() / "config.json", config.dump()));
    const auto model = Model::open(folder());
    return model ? Error{} : model.error();
  }
  Json facts_with(const Json& config) {
    EXPECT_TRUE(write_file_whole(folder() / "config.json", config.dump()));
    const auto model = Model::open(folder());
    EXPECT_TRUE(model) << to_string(model.error());
    return model ? to_json(model->facts()) : Json();
  }
  std::map<std::string, Tensor> tensors() const {
    const auto file = Safetensors::open(folder() / "model.safetensors").value();
    std::map<std::string, Tensor> all;
    for (const auto& name : file.names()) all[name] = file.tensor(name).value().copy();
    return all;
  }
  void rewrite(const std::map<std::string, Tensor>& tensors) {
    ASSERT_TRUE(write_safetensors(folder() / "model.safetensors", {tensors.begin(), tensors.end()}));
  }
  TestDir dir_;
};

TEST_P(HfFolder, GivesBackWhatWasWritten) {
  const auto facts = GetParam()->tiny();
  write(facts);
  ASSERT_TRUE(write_random_model(dir_ / "own", {facts, 3}));
  const auto model = Model::open(folder()), own = Model::open(dir_ / "own");
  ASSERT_TRUE(model) << to_string(model.error());
  EXPECT_EQ(model->kind(), "hf");
  EXPECT_EQ(to_json(model->facts()), to_json(facts));
  EXPECT_EQ(model->weight_names(), own->weight_names());
  for (const auto& name : model->weight_names()) {
    EXPECT_EQ(model->weight(name)->hash_f32(), own->weight(name)->hash_f32()) << name;
    EXPECT_EQ(model->canonical_name(model->checkpoint_name(name)), name);
  }
}

TEST_P(HfFolder, NamesTheKeyThatItCannotFollow) {
  write(GetParam()->tiny());
  const auto right = config();
  ASSERT_EQ(error_with(right).id, "");
  const auto refused = [&](const char* key, const Json& value) {
    auto wrong = right;
    wrong[key] = value;
    const auto error = error_with(wrong);
    EXPECT_EQ(error.id, "model-unsupported") << key << " " << value.dump();
    EXPECT_NE(error.message.find(key), std::string::npos) << to_string(error);
  };
  refused("model_type", "gpt2");
  refused("model_type", 7);
  refused("attention_bias", true);
  refused("mlp_bias", true);
  refused("hidden_act", "relu");
  refused("hidden_size", "many");
  refused("num_hidden_layers", -1);
  refused("num_hidden_layers", 1 << 30);
  refused("num_attention_heads", 0);
  refused("rms_norm_eps", "small");
  refused("partial_rotary_factor", 0.5);
  refused("rope_theta", true);
  refused("quantization_config", {{"quant_method", "gptq"}});
  refused("layer_types", {"full_attention"});
  auto yarn = right;
  yarn["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4}};
  EXPECT_NE(error_with(yarn).message.find("rope_type"), std::string::npos);
  yarn["rope_scaling"] = {{"type", "linear"}};
  EXPECT_NE(error_with(yarn).message.find("factor"), std::string::npos);
  for (const char* key : {"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size"}) {
    if (GetParam()->tiny().experts && GetParam()->tiny().delta && std::string_view(key) == "intermediate_size")
      continue;  // no layer has it
    auto less = right;
    less.erase(key);
    EXPECT_NE(error_with(less).message.find(key), std::string::npos);
  }
  EXPECT_EQ(error_with(Json::array()).id, "json-invalid");
}

TEST_P(HfFolder, NamesTheTensorThatIsMissingOrHasNoPlace) {
  write(GetParam()->tiny());
  const auto right = tensors();
  for (const auto& [name, tensor] : right) {
    auto fewer = right;
    fewer.erase(name);
    rewrite(fewer);
    EXPECT_NE(Model::open(folder()).error().message.find(name), std::string::npos) << name;
  }
  auto more = right;
  more["model.layers.0.self_attn.o_proj.bias"] = Tensor::zeros(DType::f32, {GetParam()->tiny().hidden});
  rewrite(more);
  EXPECT_NE(Model::open(folder()).error().message.find("o_proj.bias"), std::string::npos);
  more = right;
  more["model.layers.0.self_attn.rotary_emb.inv_freq"] = Tensor::zeros(DType::f32, {4});
  rewrite(more);
  EXPECT_TRUE(Model::open(folder()));
}

TEST_P(HfFolder, ReadsShardsAndNarrowDtypes) {
  write(GetParam()->tiny());
  const auto whole = Model::open(folder()).value();
  auto all = tensors();
  std::vector<std::pair<std::string, Tensor>> shards[2];
  Json map = Json::object();
  std::size_t i = 0;
  for (const auto& [name, tensor] : all) {
    const DType dtypes[] = {DType::f32, DType::f16, DType::bf16};
    map[name] = i % 2 == 0 ? "a.safetensors" : "b.safetensors";
    shards[i % 2].emplace_back(name, tensor.cast(dtypes[i % 3]));
    ++i;
  }
  std::filesystem::remove(folder() / "model.safetensors");
  EXPECT_EQ(Model::open(folder()).error().id, "file-missing");
  ASSERT_TRUE(write_safetensors(folder() / "a.safetensors", shards[0]));
  ASSERT_TRUE(write_safetensors(folder() / "b.safetensors", shards[1]));
  const auto index = [&](const Json& weight_map) {
    EXPECT_TRUE(write_file_whole(folder() / "model.safetensors.index.json", Json{{"metadata", {}}, {"weight_map", weight_map}}.dump()));
    return Model::open(folder());
  };
  const auto model = index(map);
  ASSERT_TRUE(model) << to_string(model.error());
  for (const auto& name : model->weight_names()) {
    const auto weight = model->weight(name).value();
    EXPECT_EQ(weight.dense.values(), whole.weight(name)->dense.cast(weight.dense.dtype()).values()) << name;
  }
  auto outside = map;
  outside["model.norm.weight"] = "../a.safetensors";
  EXPECT_EQ(index(outside).error().id, "json-invalid");
  auto no_file = map;
  no_file["model.norm.weight"] = Json::object();
  EXPECT_EQ(index(no_file).error().id, "json-invalid");
  EXPECT_EQ(index(no_file).error().where, (folder() / "model.safetensors.index.json").string());
  auto elsewhere = map;
  elsewhere["absent"] = "a.safetensors";
  EXPECT_NE(index(elsewhere).error().message.find("absent"), std::string::npos);
}
INSTANTIATE_TEST_SUITE_P(All, HfFolder, testing::ValuesIn(architectures().begin(), architectures().end()),
                         [](const auto& chosen) { return std::string(chosen.param->name); });

class HfLlama : public HfFolder {};
INSTANTIATE_TEST_SUITE_P(One, HfLlama, testing::Values(find_architecture("llama")));

TEST_P(HfLlama, ReadsRopeInBothSpellings) {
  auto facts = tiny_llama_facts();
  facts.rope.base = 500000;
  facts.rope.scaling = RopeScaling::llama3;
  facts.rope.factor = 32;
  write(facts);
  const auto old = config();
  EXPECT_EQ(facts_with(old), to_json(facts));
  auto spelled_new = old;
  spelled_new["rope_parameters"] = old["rope_scaling"];
  spelled_new["rope_parameters"]["rope_theta"] = 500000;
  spelled_new.erase("rope_scaling");
  spelled_new.erase("rope_theta");
  EXPECT_EQ(facts_with(spelled_new), to_json(facts));
  auto both = spelled_new;
  both["rope_scaling"] = old["rope_scaling"];
  EXPECT_EQ(facts_with(both), to_json(facts));
  both["rope_scaling"]["factor"] = 4;
  EXPECT_NE(error_with(both).message.find("rope_scaling"), std::string::npos);
  spelled_new["rope_theta"] = 10000;
  EXPECT_NE(error_with(spelled_new).message.find("rope_theta"), std::string::npos);
  auto type = old;
  type["rope_scaling"] = {{"type", "linear"}, {"factor", 4}};
  EXPECT_EQ(facts_with(type)["rope"]["scaling"], "linear");
}

TEST_P(HfLlama, WritesEveryScalingThatItReads) {
  auto facts = tiny_llama_facts();
  facts.rope.factor = 2;
  facts.rope.rotated = 0;
  for (const auto scaling : {RopeScaling::linear, RopeScaling::llama3, RopeScaling::proportional}) {
    facts.rope.scaling = scaling;
    facts.rope.rotated = scaling == RopeScaling::proportional ? 6 : 0;
    write(facts);
    EXPECT_EQ(facts_with(config()), to_json(facts));
  }
}

TEST_P(HfLlama, ATiedHeadIsTheEmbedding) {
  write(tiny_llama_facts());
  auto tied = config();
  tied["tie_word_embeddings"] = true;
  EXPECT_NE(error_with(tied).message.find("tie_word_embeddings"), std::string::npos);
  auto all = tensors();
  all["lm_head.weight"] = all["model.embed_tokens.weight"];
  rewrite(all);
  EXPECT_EQ(facts_with(tied)["tied_head"], true);
  all.erase("lm_head.weight");
  rewrite(all);
  EXPECT_EQ(facts_with(tied)["tied_head"], true);
  tied["tie_word_embeddings"] = false;
  EXPECT_NE(error_with(tied).message.find("lm_head.weight"), std::string::npos);
}

TEST_P(HfLlama, ReadsMlxQuantisedWeights) {
  auto facts = tiny_llama_facts();
  facts.hidden = 64;
  write(facts);
  const auto right = tensors();
  auto json = config();
  const std::string module = "model.layers.1.mlp.gate_proj";
  for (const int bits : {2, 3, 4, 5, 6, 8})
    for (const int group : {32, 64}) {
      // Value c of row r is (3 r + 5 c) mod 2^bits in a little-endian bit stream.
      const std::int64_t rows = facts.mlp_hidden, columns = 64, words = columns * bits / 32;
      std::vector<std::uint32_t> packed(static_cast<std::size_t>(rows * words));
      std::vector<double> scales, biases, expected;
      const auto quant = [&](std::int64_t r, std::int64_t c) { return static_cast<std::uint32_t>((3 * r + 5 * c) % (1 << bits)); };
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t g = 0; g < columns / group; ++g) {
          scales.push_back(0.25 * static_cast<double>(1 + (r + g) % 3));
          biases.push_back(-0.5 * static_cast<double>(r % 4));
        }
        for (std::int64_t c = 0; c < columns; ++c) {
          for (int bit = 0; bit < bits; ++bit) {
            const auto place = c * bits + bit;
            packed[static_cast<std::size_t>(r * words + place / 32)] |= (quant(r, c) >> bit & 1) << (place % 32);
          }
          const auto at = static_cast<std::size_t>(r * (columns / group) + c / group);
          expected.push_back(scales[at] * quant(r, c) + biases[at]);
        }
      }
      auto all = right;
      const std::vector<double> words_as_double(packed.begin(), packed.end());
      all[module + ".weight"] = Tensor::from_values(DType::u32, {rows, words}, words_as_double);
      all[module + ".scales"] = Tensor::from_values(DType::bf16, {rows, columns / group}, scales);
      all[module + ".biases"] = Tensor::from_values(DType::bf16, {rows, columns / group}, biases);
      rewrite(all);
      json["quantization"] = {{"group_size", group}, {"bits", bits}};
      EXPECT_EQ(error_with(json).id, "") << bits << " " << group << " " << error_with(json).message;
      const auto model = Model::open(folder());
      ASSERT_TRUE(model) << bits << " " << to_string(model.error());
      const auto weight = model->weight("w.layers.1.mlp_gate").value();
      EXPECT_TRUE(weight.quantized());
      EXPECT_EQ(weight.to_f32().values(), expected) << bits << " bits";
      EXPECT_FALSE(model->weight("w.layers.0.mlp_gate")->quantized());
      // The same, said of this module only.
      json["quantization"] = {{"group_size", 128}, {"bits", 4}, {module, {{"group_size", group}, {"bits", bits}}}};
      EXPECT_EQ(error_with(json).id, "");
      json["quantization"] = {{"group_size", group}, {"bits", bits == 8 ? 4 : 8}};
      EXPECT_NE(error_with(json).message.find(module), std::string::npos);
    }
  json["quantization"] = {{"group_size", 64}, {"bits", 7}};
  EXPECT_NE(error_with(json).message.find("bits"), std::string::npos);
  json["quantization"] = {{"group_size", 16}, {"bits", 4}};
  EXPECT_NE(error_with(json).message.find("group_size"), std::string::npos);
  json["quantization"] = {{"group_size", 32}, {"bits", 4}, {"mode", "mxfp4"}};
  EXPECT_NE(error_with(json).message.find("mode"), std::string::npos);
  json.erase("quantization");
  EXPECT_NE(error_with(json).message.find("quantization"), std::string::npos);
}

class HfGemma3 : public HfFolder {};
INSTANTIATE_TEST_SUITE_P(One, HfGemma3, testing::Values(find_architecture("gemma3")));

TEST_P(HfGemma3, ReadsItsWindowsAndBasesInEverySpelling) {
  const auto facts = GetParam()->tiny();
  write(facts);
  const auto full = config();
  auto pattern_only = full;
  pattern_only.erase("layer_types");
  EXPECT_EQ(facts_with(pattern_only), to_json(facts));
  auto types_only = full;
  types_only.erase("sliding_window_pattern");
  EXPECT_EQ(facts_with(types_only), to_json(facts));
  auto contradiction = full;
  contradiction["sliding_window_pattern"] = 2;
  EXPECT_NE(error_with(contradiction).message.find("layer_types"), std::string::npos);
  auto new_spelling = full;
  for (const char* key : {"rope_theta", "rope_scaling", "rope_local_base_freq"}) new_spelling.erase(key);
  new_spelling["rope_parameters"] = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8}, {"rope_theta", 1000000.0}}},
                                     {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 10000.0}}}};
  EXPECT_EQ(facts_with(new_spelling), to_json(facts));
  auto capped = full;
  capped["attn_logit_softcapping"] = 50;
  EXPECT_NE(error_with(capped).message.find("attn_logit_softcapping"), std::string::npos);
  capped["attn_logit_softcapping"] = nullptr;
  capped["final_logit_softcapping"] = 30;
  EXPECT_EQ(facts_with(capped)["logit_softcap"], hex_float(30));
}

class HfGemma4 : public HfFolder {};
INSTANTIATE_TEST_SUITE_P(One, HfGemma4, testing::Values(find_architecture("gemma4")));

TEST_P(HfGemma4, NamesTheKeyThatItCannotFollow) {
  const auto facts = GetParam()->tiny();
  write(facts);
  const auto right = config();
  const auto refused = [&](const char* key, const Json& value) {
    auto wrong = right;
    wrong[key] = value;
    const auto error = error_with(wrong);
    EXPECT_EQ(error.id, "model-unsupported") << key << " " << value.dump();
    EXPECT_NE(error.message.find(key), std::string::npos) << to_string(error);
  };
  refused("enable_moe_block", true);
  refused("vocab_size_per_layer_input", 96);
  refused("num_kv_shared_layers", 6);
  refused("use_bidirectional_attention", "all");
  refused("layer_types", Json(std::vector<std::string>(6, "sliding_attention")));
  for (const char* kind : {"full_attention", "sliding_attention"}) {
    auto less = right;
    less["rope_parameters"].erase(kind);
    EXPECT_NE(error_with(less).message.find(kind), std::string::npos) << kind;
  }
  // Where transformers and mlx_lm have other defaults, absence is no answer.
  for (const char* key : {"layer_types", "global_head_dim", "num_kv_shared_layers", "use_double_wide_mlp", "hidden_size_per_layer_input",
                          "rope_parameters"}) {
    auto less = right;
    less.erase(key);
    EXPECT_NE(error_with(less).message.find(key), std::string::npos) << key;
  }
  auto odd = right;
  for (const double share : {0.25, 1.5, -0.5}) {
    odd["rope_parameters"]["full_attention"]["partial_rotary_factor"] = share;  // 0.25: 3 of 12 channels
    EXPECT_NE(error_with(odd).message.find("partial_rotary_factor"), std::string::npos) << share;
  }
  auto vision = right;
  vision["use_bidirectional_attention"] = "vision";
  EXPECT_EQ(facts_with(vision), to_json(facts));
}

// A model of text, images and sound: the text's config inside, its tensors under other names, those of the rest passed over.
TEST_P(HfGemma4, ReadsTheTextOfAWrapperInBothSpellings) {
  const auto facts = GetParam()->tiny();
  write(facts);
  const auto text = config();
  const auto plain = tensors();
  const auto whole = Model::open(folder()).value();
  Json wrapper = {{"model_type", "gemma4"}, {"text_config", text}, {"vision_config", {{"hidden_size", 8}}}};
  for (const std::string spelling : {"model.language_model.", "language_model.model."}) {
    std::map<std::string, Tensor> renamed;
    for (const auto& [name, tensor] : plain) renamed[spelling + name.substr(std::string("model.").size())] = tensor;
    const std::string side = spelling.starts_with("model.") ? "model." : "";
    renamed[side + "vision_tower.patch_embedder.weight"] = Tensor::zeros(DType::f32, {3});
    renamed[side + "embed_vision.embedding_projection.weight"] = Tensor::zeros(DType::f32, {3});
    rewrite(renamed);
    EXPECT_EQ(facts_with(wrapper), to_json(facts));
    const auto model = Model::open(folder());
    ASSERT_TRUE(model) << to_string(model.error());
    EXPECT_EQ(model->weight_names(), whole.weight_names());
    EXPECT_EQ(model->checkpoint_name("w.embed"), spelling + "embed_tokens.weight");
    for (const auto& name : model->weight_names()) EXPECT_EQ(model->weight(name)->hash_f32(), whole.weight(name)->hash_f32()) << name;
    EXPECT_NE(error_with(text).message.find("embed_tokens"), std::string::npos) << "a text model has no such names";
    renamed["model.other.weight"] = Tensor::zeros(DType::f32, {3});
    rewrite(renamed);
    EXPECT_NE(error_with(wrapper).message.find("model.other.weight"), std::string::npos);
  }
  const auto refused = [&](const char* key, const Json& value) {
    auto wrong = wrapper;
    wrong[key] = value;
    EXPECT_NE(error_with(wrong).message.find(key), std::string::npos) << key;
  };
  refused("vocab_size", 96);
  refused("tie_word_embeddings", false);
  refused("text_config", nullptr);
  wrapper["text_config"]["model_type"] = "gemma3_text";
  EXPECT_NE(error_with(wrapper).message.find("model_type"), std::string::npos);
}

// Published checkpoints hold keys and values of the layers that share as well; engines drop them.
TEST_P(HfGemma4, PassesOverWhatLayersThatShareDoNotUse) {
  const auto facts = GetParam()->tiny();
  write(facts);
  const auto plain = Model::open(folder()).value();
  auto more = tensors();
  for (const char* name : {"k_proj", "v_proj", "k_norm"})
    more["model.layers.4.self_attn." + std::string(name) + ".weight"] = Tensor::zeros(DType::f32, {3});
  rewrite(more);
  const auto model = Model::open(folder());
  ASSERT_TRUE(model) << to_string(model.error());
  EXPECT_EQ(model->weight_names(), plain.weight_names());
  more["model.layers.4.self_attn.o_proj.bias"] = Tensor::zeros(DType::f32, {3});
  rewrite(more);
  EXPECT_NE(Model::open(folder()).error().message.find("o_proj.bias"), std::string::npos);
}

TEST_P(HfGemma4, ReadsTheLargeOnesToo) {
  auto facts = GetParam()->tiny();
  facts.kv_shared_layers = facts.per_layer_channels = 0;
  facts.kv_shared_double_mlp = false;
  facts.full_value_is_key = true;
  facts.full_kv_heads = 1;
  facts.logit_softcap = 0;
  facts.tied_head = false;
  facts.rope.factor = 2;
  write(facts);
  EXPECT_EQ(facts_with(config()), to_json(facts));
}

class HfMistral : public HfFolder {};
INSTANTIATE_TEST_SUITE_P(One, HfMistral, testing::Values(find_architecture("mistral")));

TEST_P(HfMistral, SlidesOnAllLayersOrOnThoseOfTheList) {
  write(GetParam()->tiny());
  auto json = config();
  json["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(facts_with(json)["window"], 4);
  EXPECT_EQ(facts_with(json)["full_every"], 2);
  json["layer_types"] = {"full_attention", "full_attention", "sliding_attention"};
  EXPECT_NE(error_with(json).message.find("layer_types"), std::string::npos);
  json["layer_types"] = {"full_attention", "full_attention", "full_attention"};
  EXPECT_EQ(facts_with(json)["window"], 0);
  json.erase("layer_types");
  json["sliding_window"] = nullptr;
  EXPECT_EQ(facts_with(json)["window"], 0);
}

class HfQwen : public HfFolder {};
INSTANTIATE_TEST_SUITE_P(Both, HfQwen, testing::Values(find_architecture("qwen2"), find_architecture("qwen3")),
                         [](const auto& chosen) { return std::string(chosen.param->name); });

TEST_P(HfQwen, SlidesOnlyWhereItSaysSo) {
  const auto facts = GetParam()->tiny();
  write(facts);
  auto json = config();
  json["sliding_window"] = 131072;
  EXPECT_EQ(facts_with(json)["window"], 0);
  json["use_sliding_window"] = true;
  json["max_window_layers"] = facts.layers;
  EXPECT_EQ(facts_with(json)["window"], 0);
  json["max_window_layers"] = 0;
  EXPECT_EQ(facts_with(json)["window"], 131072);
  json["max_window_layers"] = 1;
  EXPECT_NE(error_with(json).message.find("max_window_layers"), std::string::npos);
}

// A share of a head that is no share has no place in an int.
TEST(HfQwen35, NamesAShareOfAHeadThatIsNone) {
  for (const auto* architecture : {&kQwen35, &kQwen35Moe})
    for (const double share : {1e30, -1e30, 1.5, -0.5}) {
      auto config = architecture->write_hf(architecture->tiny());
      config["rope_parameters"]["partial_rotary_factor"] = share;
      const auto facts = read_hf_facts(HfConfig(config, "config.json"));
      ASSERT_FALSE(facts) << architecture->name << " " << share << ": " << facts->rope.dims;
      EXPECT_EQ(facts.error().id, "model-unsupported");
      EXPECT_NE(facts.error().message.find("partial_rotary_factor"), std::string::npos) << to_string(facts.error());
    }
}

TEST_P(HfFolder, ARandomModelIsQuantisedWhereRowsAreWholeGroups) {
  auto facts = GetParam()->tiny();
  facts.hidden = 64;
  write(facts);
  const auto dense = Model::open(folder());
  ASSERT_TRUE(dense) << to_string(dense.error());
  for (const int bits : {2, 4, 8}) {
    ASSERT_TRUE(write_random_hf_model(dir_ / "packed", {facts, 3, bits}));
    const auto packed = Model::open(dir_ / "packed");
    ASSERT_TRUE(packed) << to_string(packed.error());
    int quantised = 0;
    for (const auto& name : packed->weight_names()) {
      const auto weight = packed->weight(name).value();
      if (!weight.quantized()) {
        EXPECT_EQ(weight.hash_f32(), dense->weight(name)->hash_f32()) << name;
        continue;
      }
      ++quantised;
      EXPECT_EQ(weight.bits, bits);
      const auto scales = weight.scales.values(), right = dense->weight(name)->to_f32().values(), read = weight.to_f32().values();
      for (std::size_t i = 0; i < read.size();
           ++i)  // a group's far end may be a whole step off, and 255 roundings of f32 are less than 2^-15
        ASSERT_LE(std::abs(read[i] - right[i]), (1 + 0x1p-15) * std::abs(scales[i / static_cast<std::size_t>(weight.group)]))
            << name << " " << i;
    }
    EXPECT_GT(quantised, 0);
  }
}

TEST(RandomModel, WithoutWholeGroupsIsRefused) {
  const TestDir dir;
  const auto made = write_random_hf_model(dir / "m", {tiny_llama_facts(), 1, 4});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().id, "model-unsupported");
  EXPECT_FALSE(std::filesystem::exists(dir / "m"));
}

}  // namespace
}  // namespace culprit
