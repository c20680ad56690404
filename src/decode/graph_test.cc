#include "decode/graph.h"

#include <gtest/gtest.h>

#include <set>

#include "decode/architecture.h"
#include "decode/facts_json.h"
#include "decode/model.h"
#include "decode/model_weights.h"

namespace culprit {
namespace {

TEST(Op, NamesAreUniqueAndParse) {
  std::set<std::string_view> names;
  for (const Op op : all_ops()) {
    EXPECT_TRUE(names.insert(name_of(op)).second);
    EXPECT_EQ(parse_op(name_of(op)).value(), op);
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(Op::select_head) + 1);  // the last one
  EXPECT_NE(parse_op("rms_nrom").error().message.find("did you mean rms_norm?"), std::string::npos);
  EXPECT_FALSE(parse_op(""));
}

TEST(LlamaGraph, IsTheListOfTapsInOrder) {
  auto facts = tiny_llama_facts();
  facts.layers = 1;
  const Graph graph(facts);
  const char* expected[] = {"embed",
                            "layers.0.attn_norm",
                            "layers.0.q",
                            "layers.0.k",
                            "layers.0.v",
                            "layers.0.q_rope",
                            "layers.0.k_rope",
                            "layers.0.k_cache",
                            "layers.0.v_cache",
                            "layers.0.attn",
                            "layers.0.attn_out",
                            "layers.0.attn_residual",
                            "layers.0.mlp_norm",
                            "layers.0.mlp_gate",
                            "layers.0.mlp_up",
                            "layers.0.mlp_act",
                            "layers.0.mlp_down",
                            "layers.0.residual",
                            "final_norm",
                            "logits"};
  ASSERT_EQ(graph.nodes().size(), std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(graph.nodes()[i].output, expected[i]);
}

TEST(EveryGraph, ReadsWhatWasWrittenBeforeAndUsesItsWholeTable) {
  for (const auto* architecture : architectures()) {
    std::set<std::string> roles, hf_names;
    for (const bool tied : {false, true}) {
      auto facts = architecture->tiny();
      facts.tied_head = tied;
      facts.logit_softcap = 5;
      ASSERT_TRUE(check_facts(facts)) << architecture->name;
      EXPECT_EQ(find_architecture(architecture->name), architecture);
      EXPECT_EQ(find_hf_architecture(architecture->hf_type), architecture);
      const Graph graph(facts);
      std::set<std::string> written;
      for (const auto& node : graph.nodes()) {
        for (const auto& input : node.inputs) EXPECT_TRUE(written.contains(input)) << node.output << " reads " << input;
        EXPECT_TRUE(written.insert(node.output).second) << node.output;
      }
      EXPECT_EQ(graph.nodes().back().output, "logits");
      hf_names.clear();
      for (const auto& weight : model_weights(graph)) {
        roles.insert(tap_role(weight.canonical));
        EXPECT_TRUE(hf_names.insert(weight.hf + " " + std::to_string(weight.part)).second) << weight.hf;
        EXPECT_EQ(weight.gguf.empty(), architecture->read_gguf == nullptr);
      }
    }
    EXPECT_EQ(roles.size(), architecture->weights.size()) << architecture->name;
  }
}

TEST(Facts, AskForNoNodesThatTheArchitectureHasNot) {
  const auto refused = [](const char* architecture, auto change) {
    auto facts = find_architecture(architecture)->tiny();
    change(facts);
    const auto fit = check_facts(facts);
    return !fit && fit.error().id == "model-unsupported";
  };
  const auto moe = *find_architecture("qwen3_5_moe")->tiny().experts;
  EXPECT_TRUE(refused("qwen3_5_moe", [](Facts& f) { f.experts->every = 2; }));
  EXPECT_TRUE(refused("qwen3_5_moe", [](Facts& f) { f.experts->dense_layers = {0}; }));
  EXPECT_TRUE(refused("qwen3_5_moe", [](Facts& f) { f.experts.reset(); }));
  EXPECT_TRUE(refused("llama", [&](Facts& f) { f.experts = moe; }));
  EXPECT_TRUE(refused("qwen3_moe", [&](Facts& f) { f.experts->shared_hidden = 8; }));
  EXPECT_TRUE(refused("llama", [](Facts& f) { f.delta = find_architecture("qwen3_5")->tiny().delta; }));
  EXPECT_TRUE(refused("llama", [](Facts& f) { f.per_layer_channels = 8; }));
  for (const auto* architecture : architectures()) EXPECT_FALSE(refused(architecture->name.data(), [](Facts&) {})) << architecture->name;
}

TEST(Gemma3Graph, IsTheListOfTapsInOrder) {
  auto facts = find_architecture("gemma3")->tiny();
  facts.layers = 1;
  const Graph graph(facts);
  const char* expected[] = {"embed",
                            "embed_scaled",
                            "layers.0.attn_norm",
                            "layers.0.q",
                            "layers.0.k",
                            "layers.0.v",
                            "layers.0.q_norm",
                            "layers.0.k_norm",
                            "layers.0.q_rope",
                            "layers.0.k_rope",
                            "layers.0.k_cache",
                            "layers.0.v_cache",
                            "layers.0.attn",
                            "layers.0.attn_out",
                            "layers.0.attn_post_norm",
                            "layers.0.attn_residual",
                            "layers.0.mlp_norm",
                            "layers.0.mlp_gate",
                            "layers.0.mlp_up",
                            "layers.0.mlp_act",
                            "layers.0.mlp_down",
                            "layers.0.mlp_post_norm",
                            "layers.0.residual",
                            "final_norm",
                            "logits"};
  ASSERT_EQ(graph.nodes().size(), std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(graph.nodes()[i].output, expected[i]);
  EXPECT_EQ(graph.find("layers.0.residual")->inputs, (std::vector<std::string>{"layers.0.attn_residual", "layers.0.mlp_post_norm"}));
  EXPECT_EQ(graph.find("layers.0.q_rope")->inputs, (std::vector<std::string>{"layers.0.q_norm"}));
  EXPECT_EQ(graph.find("embed_scaled")->factor, 8);
}

TEST(Gemma4Graph, IsTheListOfTapsInOrder) {
  auto facts = find_architecture("gemma4")->tiny();
  facts.layers = 1;
  facts.kv_shared_layers = 0;
  const Graph graph(facts);
  const char* expected[] = {"embed",
                            "embed_scaled",
                            "per_layer_embed",
                            "per_layer_embed_scaled",
                            "per_layer_model",
                            "per_layer_model_scaled",
                            "per_layer_model_norm",
                            "per_layer_sum",
                            "per_layer_inputs",
                            "layers.0.attn_norm",
                            "layers.0.q",
                            "layers.0.k",
                            "layers.0.v",
                            "layers.0.q_norm",
                            "layers.0.k_norm",
                            "layers.0.v_norm",
                            "layers.0.q_rope",
                            "layers.0.k_rope",
                            "layers.0.k_cache",
                            "layers.0.v_cache",
                            "layers.0.attn",
                            "layers.0.attn_out",
                            "layers.0.attn_post_norm",
                            "layers.0.attn_residual",
                            "layers.0.mlp_norm",
                            "layers.0.mlp_gate",
                            "layers.0.mlp_up",
                            "layers.0.mlp_act",
                            "layers.0.mlp_down",
                            "layers.0.mlp_post_norm",
                            "layers.0.mlp_residual",
                            "layers.0.per_layer_input",
                            "layers.0.per_layer_gate",
                            "layers.0.per_layer_act",
                            "layers.0.per_layer_out",
                            "layers.0.per_layer_post_norm",
                            "layers.0.per_layer_residual",
                            "layers.0.residual",
                            "final_norm",
                            "logits_uncapped",
                            "logits"};
  ASSERT_EQ(graph.nodes().size(), std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(graph.nodes()[i].output, expected[i]);
  EXPECT_EQ(graph.find("layers.0.v_cache")->inputs, (std::vector<std::string>{"layers.0.v_norm"}));
  EXPECT_EQ(graph.find("layers.0.residual")->weight, "w.layers.0.layer_scalar");
  EXPECT_EQ(attention_scale(facts), 1);
}

TEST(Gemma4Graph, LastLayersReadTheCacheOfTheLastOfTheirKind) {
  const auto facts = find_architecture("gemma4")->tiny();
  const Graph graph(facts);
  const int source[] = {0, 1, 2, 1, 1, 2};
  for (int layer = 0; layer < facts.layers; ++layer) {
    const auto tap = [](int of, const char* role) { return "layers." + std::to_string(of) + "." + role; };
    EXPECT_EQ(graph.find(tap(layer, "attn"))->inputs,
              (std::vector<std::string>{tap(layer, "q_rope"), tap(source[layer], "k_cache"), tap(source[layer], "v_cache")}));
    for (const char* role : {"k", "v", "k_norm", "v_norm", "k_rope", "k_cache", "v_cache"})
      EXPECT_EQ(graph.find(tap(layer, role)) != nullptr, layer < 3) << layer << " " << role;
    EXPECT_EQ(graph.find(tap(layer, "per_layer_input"))->head, layer);
  }
  // Shapes follow the layer: full ones have wider heads, those that share a wider MLP.
  const auto shape_of = [&](const Graph& of, const std::string& name) {
    for (const auto& weight : model_weights(of))
      if (weight.canonical == name) return weight.shape;
    return Shape{};
  };
  EXPECT_EQ(shape_of(graph, "w.layers.1.q"), (Shape{48, 48}));
  EXPECT_EQ(shape_of(graph, "w.layers.2.q"), (Shape{72, 48}));
  EXPECT_EQ(shape_of(graph, "w.layers.2.k"), (Shape{36, 48}));
  EXPECT_EQ(shape_of(graph, "w.layers.5.attn_out"), (Shape{48, 72}));
  EXPECT_EQ(shape_of(graph, "w.layers.5.q_norm"), (Shape{12}));
  EXPECT_EQ(shape_of(graph, "w.layers.2.mlp_up"), (Shape{80, 48}));
  EXPECT_EQ(shape_of(graph, "w.layers.3.mlp_up"), (Shape{160, 48}));
  EXPECT_EQ(shape_of(graph, "w.per_layer_embed"), (Shape{97, 60}));

  // As the 31B: values are the keys before norm and rope, of fewer kv heads; no input for each layer.
  auto large = facts;
  large.kv_shared_layers = large.per_layer_channels = 0;
  large.full_value_is_key = true;
  large.full_kv_heads = 1;
  ASSERT_TRUE(check_facts(large));
  const Graph other(large);
  EXPECT_EQ(other.find("layers.2.v"), nullptr);
  EXPECT_NE(other.find("layers.1.v"), nullptr);
  EXPECT_EQ(other.find("layers.2.v_norm")->inputs, (std::vector<std::string>{"layers.2.k"}));
  EXPECT_EQ(shape_of(other, "w.layers.2.k"), (Shape{12, 48}));
  EXPECT_EQ(shape_of(other, "w.layers.1.k"), (Shape{24, 48}));
  EXPECT_EQ(other.find("per_layer_inputs"), nullptr);
  EXPECT_EQ(other.find("layers.0.residual")->inputs, (std::vector<std::string>{"layers.0.mlp_residual"}));
}

TEST(LlamaGraph, NodesReadWhatWasWrittenBeforeThem) {
  const Graph graph(tiny_llama_facts());
  std::set<std::string> written;
  for (const auto& node : graph.nodes()) {
    for (const auto& input : node.inputs) EXPECT_TRUE(written.contains(input)) << node.output << " reads " << input;
    EXPECT_TRUE(written.insert(node.output).second) << node.output;
    EXPECT_EQ(graph.find(node.output), &graph.nodes()[static_cast<std::size_t>(graph.index_of(node.output))]);
    EXPECT_EQ(node.layer, node.output.starts_with("layers.") ? std::stoi(node.output.substr(7)) : -1);
  }
  EXPECT_EQ(graph.index_of("layers.3.q"), -1);
  EXPECT_EQ(graph.find(""), nullptr);
  EXPECT_EQ(graph.find("layers.1.attn_norm")->inputs, (std::vector<std::string>{"layers.0.residual"}));
  EXPECT_EQ(graph.find("layers.1.attn_residual")->inputs, (std::vector<std::string>{"layers.0.residual", "layers.1.attn_out"}));
  EXPECT_EQ(graph.find("layers.1.attn")->inputs, (std::vector<std::string>{"layers.1.q_rope", "layers.1.k_cache", "layers.1.v_cache"}));
  EXPECT_EQ(graph.find("layers.2.q")->heads_out, 6);
  EXPECT_EQ(graph.find("layers.2.v")->heads_out, 3);
  EXPECT_EQ(graph.find("layers.2.v")->weight, "w.layers.2.v");
}

TEST(LlamaGraph, TiedHeadReadsTheEmbedding) {
  auto facts = tiny_llama_facts();
  EXPECT_EQ(Graph(facts).find("logits")->weight, "w.logits");
  EXPECT_EQ(model_weights(Graph(facts)).size(), 3u + 9 * 3);
  facts.tied_head = true;
  EXPECT_EQ(Graph(facts).find("logits")->weight, "w.embed");
  EXPECT_EQ(model_weights(Graph(facts)).size(), 2u + 9 * 3);
}

TEST(TapRole, IsTheLastPart) {
  EXPECT_EQ(tap_role("layers.12.q_rope"), "q_rope");
  EXPECT_EQ(tap_role("logits"), "logits");
  EXPECT_EQ(tap_role("w.layers.0.q"), "q");
}

TEST(Facts, SurviveJsonBitByBit) {
  auto facts = tiny_llama_facts();
  facts.norm_epsilon = static_cast<double>(1e-5f);
  facts.rope = {.dims = 6,
                .base = 500000.1,
                .pairing = RopePairing::interleaved,
                .scaling = RopeScaling::llama3,
                .factor = 32,
                .low_frequency_factor = 1.1,
                .high_frequency_factor = 4.3,
                .original_context = 8191};
  facts.rope_local = facts.rope;
  facts.rope_local->scaling = RopeScaling::proportional;
  facts.rope_local->rotated = 4;
  facts.full_head_channels = 12;
  facts.full_kv_heads = 1;
  facts.full_value_is_key = facts.kv_shared_double_mlp = true;
  facts.kv_shared_layers = 2;
  facts.per_layer_channels = 10;
  facts.query_pre_attn_scalar = 168.1;
  facts.logit_softcap = 30.1;
  facts.window = 5;
  const auto json = to_json(facts);
  const auto back = facts_from_json(parse_json(json.dump()).value());
  ASSERT_TRUE(back) << to_string(back.error());
  EXPECT_EQ(to_json(*back), json);
  EXPECT_EQ(back->norm_epsilon, facts.norm_epsilon);
  EXPECT_EQ(back->rope.base, facts.rope.base);
  // Every field counts.
  for (const auto& [key, value] : json.items()) {
    auto less = json;
    less.erase(key);
    EXPECT_EQ(facts_from_json(less).error().id, "json-invalid") << key;
  }
  for (const char* rope : {"rope", "rope_local"})
    for (const auto& [key, value] : json.at(rope).items()) {
      auto less = json;
      less[rope].erase(key);
      EXPECT_EQ(facts_from_json(less).error().id, "json-invalid") << rope << " " << key;
    }
  auto one_rope = json;
  one_rope["rope_local"] = nullptr;
  EXPECT_FALSE(facts_from_json(one_rope)->rope_local);
  auto more = json;
  more["extra"] = 1;
  EXPECT_FALSE(facts_from_json(more));
  auto other = json;
  other["rope"]["pairing"] = "thirds";
  EXPECT_FALSE(facts_from_json(other));
}

TEST(CheckFacts, RefusesWhatCannotBeBuilt) {
  EXPECT_TRUE(check_facts(tiny_llama_facts()));
  const auto refused = [](auto change) {
    auto facts = tiny_llama_facts();
    change(facts);
    const auto fit = check_facts(facts);
    return !fit && fit.error().id == "model-unsupported";
  };
  EXPECT_TRUE(refused([](Facts& f) { f.architecture = "lama"; }));
  EXPECT_TRUE(refused([](Facts& f) { f.layers = 0; }));
  EXPECT_TRUE(refused([](Facts& f) { f.hidden = -48; }));
  EXPECT_TRUE(refused([](Facts& f) { f.kv_heads = 4; }));
  EXPECT_TRUE(refused([](Facts& f) { f.kv_heads = 0; }));
  EXPECT_TRUE(refused([](Facts& f) { f.rope.dims = 7; }));
  EXPECT_TRUE(refused([](Facts& f) { f.rope.dims = 10; }));
  EXPECT_TRUE(refused([](Facts& f) { f.rope.base = 0; }));
  EXPECT_TRUE(refused([](Facts& f) { f.rope.factor = 0; }));
  EXPECT_TRUE(refused([](Facts& f) { f.window = -1; }));
  EXPECT_TRUE(refused([](Facts& f) { f.full_every = 2; }));
  EXPECT_TRUE(refused([](Facts& f) { f.rope_local = f.rope; }));
  EXPECT_TRUE(refused([](Facts& f) { f.window = 5, f.rope_local = f.rope, f.rope_local->dims = 3; }));
  EXPECT_TRUE(refused([](Facts& f) { f.logit_softcap = -1; }));
  EXPECT_TRUE(refused([](Facts& f) { f.query_pre_attn_scalar = std::numeric_limits<double>::infinity(); }));
  EXPECT_TRUE(refused([](Facts& f) { f.norm_epsilon = std::numeric_limits<double>::quiet_NaN(); }));
  EXPECT_TRUE(refused([](Facts& f) { f.rope.scaling = RopeScaling::proportional, f.rope.rotated = 3; }));
  EXPECT_TRUE(refused([](Facts& f) { f.rope.scaling = RopeScaling::proportional, f.rope.rotated = 10; }));
  EXPECT_TRUE(refused([](Facts& f) { f.kv_shared_layers = 3; })) << "no layer is left to share";
  EXPECT_TRUE(refused([](Facts& f) { f.kv_shared_layers = 0x7fffffff; }));
  EXPECT_TRUE(refused([](Facts& f) { f.kv_shared_layers = -1; }));
  EXPECT_TRUE(refused([](Facts& f) { f.window = 4, f.full_every = 3, f.kv_shared_layers = 1; })) << "no full layer comes before";
  EXPECT_TRUE(refused([](Facts& f) { f.window = 4, f.full_every = 1, f.layers = 2, f.kv_shared_layers = 2; }));
  EXPECT_TRUE(refused([](Facts& f) { f.full_head_channels = 8; })) << "no scale of attention fits both widths";
  EXPECT_TRUE(refused([](Facts& f) { f.full_head_channels = -8; }));
  EXPECT_TRUE(refused([](Facts& f) { f.full_head_channels = 6, f.query_pre_attn_scalar = 1; })) << "8 channels rotate";
  EXPECT_TRUE(refused([](Facts& f) { f.full_kv_heads = 4; }));
  EXPECT_TRUE(refused([](Facts& f) { f.per_layer_channels = -1; }));
  EXPECT_TRUE(refused([](Facts& f) { f.per_layer_channels = 0x7fffffff; }));
  EXPECT_TRUE(refused([](Facts& f) { f.kv_shared_double_mlp = true, f.mlp_hidden = 0x40000000; }));
  EXPECT_TRUE(refused([](Facts& f) {
    f.rope.scaling = RopeScaling::llama3;
    f.rope.high_frequency_factor = f.rope.low_frequency_factor;
  }));
}

}  // namespace
}  // namespace culprit
