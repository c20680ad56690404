#include "decode/node_eval.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/test_dir.h"
#include "decode/architecture.h"
#include "decode/model.h"

namespace culprit {
namespace {

using Tokens = std::vector<std::vector<int>>;

/// Decodes with evaluate_node alone: a concat cache, f64 throughout.
class Decoder {
 public:
  explicit Decoder(const Model& model, std::int64_t position_base = 0) : model_(model), next_position_(position_base) {
    for (const auto& name : model.weight_names()) weights_[name] = model.weight(name)->to_f32();
  }
  /// Every tap of one step.
  std::map<std::string, Array> step(const Tokens& tokens) {
    Coordinates at;
    slots_.resize(tokens.size());
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      at.sequence.push_back(static_cast<int>(row));
      at.position.emplace_back();
      for (std::size_t t = 0; t < tokens[row].size(); ++t) at.position[row].push_back(next_position_ + static_cast<std::int64_t>(t));
      slots_[row].insert(slots_[row].end(), at.position[row].begin(), at.position[row].end());
    }
    at.slot = slots_;
    next_position_ += static_cast<std::int64_t>(tokens[0].size());
    std::map<std::string, Array> taps;
    for (const auto& node : model_.graph().nodes()) {
      NodeContext context;
      context.facts = &model_.facts();
      context.tokens = tokens;
      context.at = at;
      if (!node.bias.empty()) context.bias = weights_.at(node.bias);
      if (!node.weight.empty()) context.weight = weights_.at(node.weight);
      if (has_state(node.op)) context.cache = caches_[node.output];
      std::vector<Array> inputs;
      for (const auto& input : node.inputs) inputs.push_back(taps.at(input));
      auto output = evaluate_node(node, inputs, context);
      EXPECT_TRUE(output) << to_string(output.error());
      if (node.op == Op::cache_write) caches_[node.output] = to_tensor(*output, DType::f64);
      if (node.op == Op::delta_state) {
        const auto states = to_tensor(*output, DType::f64);
        caches_[node.output] = states.sliced(2, states.dim(2) - 1, states.dim(2)).contiguous();
      }
      if (node.op == Op::causal_conv) caches_[node.output] = last_inputs(caches_[node.output], to_tensor(inputs[0], DType::f64), context);
      taps[node.output] = std::move(*output);
    }
    return taps;
  }
  [[nodiscard]] const Tensor& weight(const std::string& name) const { return weights_.at(name); }

 private:
  /// The last kernel - 1 tokens of what a convolution was given so far.
  static Tensor last_inputs(const Tensor& earlier, const Tensor& x, const NodeContext& context) {
    const auto kept = context.weight.dim(1) - 1;
    auto last = Tensor::zeros(DType::f64, {x.dim(0), 1, kept, x.dim(3)});
    for_each_index(last.shape(), [&](std::span<const std::int64_t> index) {
      std::vector<std::int64_t> from(index.begin(), index.end());
      from[2] += x.dim(2) - kept;
      if (from[2] >= 0) last.set(index, x.at(from));
      from[2] += kept;
      if (from[2] < kept && earlier.rank() > 0) last.set(index, earlier.at(from));
    });
    return last;
  }

  const Model& model_;
  std::int64_t next_position_;
  std::vector<std::vector<std::int64_t>> slots_;
  std::map<std::string, Tensor> weights_;
  std::map<std::string, Tensor> caches_;
};

class TinyModel : public testing::TestWithParam<RopePairing> {
 protected:
  TinyModel() {
    auto facts = tiny_llama_facts();
    facts.rope.pairing = GetParam();
    facts.rope.dims = GetParam() == RopePairing::half ? 8 : 6;  // partial rotation too
    EXPECT_TRUE(write_random_model(dir_ / "m", {facts, 11}));
    model_.emplace(Model::open(dir_ / "m").value());
  }
  TestDir dir_;
  std::optional<Model> model_;
};

std::vector<double> last_logits(const std::map<std::string, Array>& taps, std::size_t row = 0) {
  const auto& logits = taps.at("logits");
  const auto vocabulary = static_cast<std::size_t>(logits.shape[2]);
  const auto tokens = static_cast<std::size_t>(logits.shape[1]);
  const auto* begin = logits.values.data() + (row * tokens + tokens - 1) * vocabulary;
  return {begin, begin + vocabulary};
}

double largest_difference(const std::vector<double>& x, const std::vector<double>& y) {
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
  return largest;
}

/// Llama's forward pass by the book, one sequence, in long double, with none of the ops.
std::vector<double> by_the_book(const Decoder& weights, const Facts& facts, const std::vector<int>& tokens) {
  using Real = long double;
  using Vector = std::vector<Real>;
  const auto matrix = [&](const std::string& name, const Vector& x) {
    const auto& w = weights.weight(name);
    const auto values = w.values();
    Vector y(static_cast<std::size_t>(w.dim(0)));
    for (std::size_t j = 0; j < y.size(); ++j)
      for (std::size_t i = 0; i < x.size(); ++i) y[j] += static_cast<Real>(values[j * x.size() + i]) * x[i];
    return y;
  };
  const auto norm = [&](const std::string& name, Vector x) {
    const auto w = weights.weight(name).values();
    Real squares = 0;
    for (const auto v : x) squares += v * v;
    const Real root = std::sqrt(squares / static_cast<Real>(x.size()) + static_cast<Real>(facts.norm_epsilon));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i] / root * static_cast<Real>(w[i]);
    return x;
  };
  const auto rotate = [&](Vector& heads, int position) {
    const auto channels = static_cast<std::size_t>(facts.head_channels);
    const auto half = static_cast<std::size_t>(facts.rope.dims / 2);
    for (std::size_t head = 0; head < heads.size() / channels; ++head) {
      for (std::size_t i = 0; i < half; ++i) {
        const Real angle = position * std::pow(static_cast<Real>(facts.rope.base), -2 * static_cast<Real>(i) / facts.rope.dims);
        const bool interleaved = facts.rope.pairing == RopePairing::interleaved;
        Real& p = heads[head * channels + (interleaved ? 2 * i : i)];
        Real& q = heads[head * channels + (interleaved ? 2 * i + 1 : i + half)];
        const Real a = p, b = q;
        p = a * std::cos(angle) - b * std::sin(angle);
        q = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  };
  const auto channels = static_cast<std::size_t>(facts.head_channels);
  const auto group = static_cast<std::size_t>(facts.heads / facts.kv_heads);
  std::vector<std::vector<Vector>> keys(static_cast<std::size_t>(facts.layers)), values(keys);
  Vector logits;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    Vector x;
    for (int i = 0; i < facts.hidden; ++i) x.push_back(static_cast<Real>(weights.weight("w.embed").at({tokens[t], i})));
    for (std::size_t layer = 0; layer < keys.size(); ++layer) {
      const auto w = "w.layers." + std::to_string(layer) + ".";
      const auto normed = norm(w + "attn_norm", x);
      auto q = matrix(w + "q", normed);
      auto k = matrix(w + "k", normed);
      rotate(q, static_cast<int>(t));
      rotate(k, static_cast<int>(t));
      keys[layer].push_back(k);
      values[layer].push_back(matrix(w + "v", normed));
      Vector attended(q.size());
      for (std::size_t head = 0; head < static_cast<std::size_t>(facts.heads); ++head) {
        const auto kv = head / group * channels;
        Vector share;
        Real total = 0;
        for (const auto& key : keys[layer]) {
          Real score = 0;
          for (std::size_t c = 0; c < channels; ++c) score += q[head * channels + c] * key[kv + c];
          share.push_back(std::exp(score / std::sqrt(static_cast<Real>(channels))));
          total += share.back();
        }
        for (std::size_t s = 0; s < share.size(); ++s)
          for (std::size_t c = 0; c < channels; ++c) attended[head * channels + c] += share[s] / total * values[layer][s][kv + c];
      }
      const auto attention = matrix(w + "attn_out", attended);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += attention[i];
      const auto mlp_in = norm(w + "mlp_norm", x);
      auto gate = matrix(w + "mlp_gate", mlp_in);
      const auto up = matrix(w + "mlp_up", mlp_in);
      for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      const auto down = matrix(w + "mlp_down", gate);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += down[i];
    }
    logits = matrix("w.logits", norm("w.final_norm", x));
  }
  return {logits.begin(), logits.end()};
}

/// First-order rounding of the whole pass: in each layer every output goes through sums of hidden (four times over), mlp_hidden and slots
/// terms, each of which errs by at most its length in units relative to operands of size about 1, as the norms make them.
double rounding_of_pass(const Facts& facts, std::size_t slots, const std::vector<double>& logits) {
  double largest = 0;
  for (const double value : logits) largest = std::max(largest, std::abs(value));
  const auto terms =
      static_cast<double>(facts.layers + 1) * static_cast<double>(4 * facts.hidden + facts.mlp_hidden + static_cast<int>(slots));
  return terms * rounding_of(DType::f64).unit * largest;
}

const std::vector<int> kTokens{3, 96, 0, 41, 41, 7, 58, 12, 90};

TEST_P(TinyModel, IsLlamaByTheBook) {
  Decoder decoder(*model_);
  const auto actual = last_logits(decoder.step({kTokens}));
  const auto expected = by_the_book(decoder, model_->facts(), kTokens);
  ASSERT_EQ(expected.size(), actual.size());
  EXPECT_LT(largest_difference(expected, actual), rounding_of_pass(model_->facts(), kTokens.size(), expected));
  EXPECT_GT(*std::max_element(actual.begin(), actual.end()), 0.1);
}

// Each output is computed in the same order whatever the schedule is: equal bit for bit, at every tap.
TEST_P(TinyModel, OneByOneAndChunkedAreThePrefill) {
  Decoder prefill(*model_);
  const auto whole = prefill.step({kTokens});
  for (const std::size_t chunk : {1u, 2u, 4u}) {
    Decoder decoder(*model_);
    std::map<std::string, Array> taps;
    for (std::size_t begin = 0; begin < kTokens.size(); begin += chunk) {
      const auto end = std::min(begin + chunk, kTokens.size());
      taps = decoder.step({{kTokens.begin() + static_cast<std::ptrdiff_t>(begin), kTokens.begin() + static_cast<std::ptrdiff_t>(end)}});
    }
    EXPECT_EQ(last_logits(whole), last_logits(taps)) << chunk;
    for (const auto& node : model_->graph().nodes()) {
      if (node.op != Op::cache_write) continue;
      EXPECT_EQ(whole.at(node.output).values, taps.at(node.output).values) << node.output;
    }
  }
}

TEST_P(TinyModel, ARowAloneIsTheRowInABatch) {
  const Tokens rows{{3, 96, 0, 41}, {7, 58, 12, 90}, {3, 96, 0, 42}};
  Decoder batched(*model_);
  const auto together = batched.step(rows);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    Decoder alone(*model_);
    EXPECT_EQ(last_logits(together, row), last_logits(alone.step({rows[row]})));
  }
  EXPECT_NE(last_logits(together, 0), last_logits(together, 2));
}

TEST_P(TinyModel, PositionsAreRelative) {
  Decoder at_zero(*model_);
  const auto expected = last_logits(at_zero.step({kTokens}));
  for (const std::int64_t base : {257, 4099}) {
    Decoder shifted(*model_, base);
    const auto actual = last_logits(shifted.step({kTokens}));
    // On top of the pass's own rounding, an angle of `base` radians is rounded once for q and k in each layer.
    const double angles = 4 * static_cast<double>(base) * static_cast<double>(model_->facts().layers) * rounding_of(DType::f64).unit;
    EXPECT_LT(largest_difference(expected, actual), rounding_of_pass(model_->facts(), kTokens.size(), expected) + angles * 8);
  }
}
INSTANTIATE_TEST_SUITE_P(Both, TinyModel, testing::Values(RopePairing::half, RopePairing::interleaved));

/// The tiny model of every architecture, its window short enough to cut something off.
class TinyArchitecture : public testing::TestWithParam<const Architecture*> {
 protected:
  TinyArchitecture() {
    auto facts = GetParam()->tiny();
    if (facts.window > 0) facts.window = 3;
    EXPECT_TRUE(write_random_model(dir_ / "m", {facts, 7}));
    model_ = Model::open(dir_ / "m").value();
  }
  TestDir dir_;
  std::optional<Model> model_;
};

TEST_P(TinyArchitecture, OneByOneAndInABatchIsThePrefillAlone) {
  Decoder prefill(*model_), batched(*model_);
  const auto whole = prefill.step({kTokens});
  std::map<std::string, Array> taps;
  for (const int token : kTokens) taps = batched.step({{5}, {token}});
  EXPECT_EQ(last_logits(whole), last_logits(taps, 1));
  EXPECT_NE(last_logits(whole), last_logits(taps, 0));
}

TEST_P(TinyArchitecture, EveryWeightAndParameterMatters) {
  // Nothing that an architecture states is without effect: each node's output changes when one of its parameters does.
  const auto& facts = model_->facts();
  for (const auto& node : model_->graph().nodes()) {
    if (node.op == Op::rms_norm) {
      EXPECT_EQ(node.unit_offset, facts.norm_unit_offset && tap_role(node.output) != "delta_norm") << node.output;
    }
    if (node.op == Op::sdpa) {
      EXPECT_EQ(node.window, is_sliding(facts, node.layer) ? facts.window : 0) << node.output;
    }
    if (node.op == Op::rope) {
      EXPECT_EQ(node.rope_local, facts.rope_local && is_sliding(facts, node.layer)) << node.output;
    }
  }
  Decoder decoder(*model_);
  const auto expected = last_logits(decoder.step({kTokens}));
  const auto changed = [&](auto change) {
    RandomModel other{facts, 7};
    change(other.facts);
    EXPECT_TRUE(write_random_model(dir_ / "other", other));
    const auto model = Model::open(dir_ / "other").value();
    Decoder again(model);
    return last_logits(again.step({kTokens})) != expected;
  };
  EXPECT_FALSE(changed([](Facts&) {}));
  EXPECT_TRUE(changed([](Facts& f) { f.query_pre_attn_scalar = 7; }));
  EXPECT_TRUE(changed([](Facts& f) { f.logit_softcap = 2; }));
  EXPECT_TRUE(changed([](Facts& f) { f.rope.base *= 2; }));
  EXPECT_TRUE(changed([](Facts& f) { f.window = 2; }));
  if (facts.full_every > 0) {
    EXPECT_TRUE(changed([](Facts& f) { f.full_every = 2; }));
  }
  if (facts.rope_local) {
    EXPECT_TRUE(changed([](Facts& f) { f.rope_local->base *= 2; }));
  }
  if (facts.experts) {
    EXPECT_TRUE(changed([](Facts& f) { f.experts->used -= 1; }));
    EXPECT_TRUE(changed([](Facts& f) { f.experts->normalised = !f.experts->normalised; }));
  }
  if (facts.delta) {
    EXPECT_TRUE(changed([](Facts& f) { f.delta->key_heads *= 3; }));
    EXPECT_TRUE(changed([](Facts& f) { f.delta->kernel -= 1; }));
  }
  if (facts.rope.rotated > 0) {
    EXPECT_TRUE(changed([](Facts& f) { f.rope.rotated -= 2; }));
  }
  if (facts.kv_shared_layers > 0) {
    EXPECT_TRUE(changed([](Facts& f) { f.kv_shared_layers -= 1; }));
  }
}
INSTANTIATE_TEST_SUITE_P(All, TinyArchitecture, testing::ValuesIn(architectures().begin(), architectures().end()),
                         [](const auto& chosen) { return std::string(chosen.param->name); });

TEST(EvaluateNode, AddsABiasAndRoundsConstantsToTheDtype) {
  const auto facts = tiny_llama_facts();
  NodeContext context;
  context.facts = &facts;
  context.weight = Tensor::from_values(DType::f32, {2, 3}, std::vector<double>{1, 2, 3, 4, 5, 6});
  context.bias = Tensor::from_values(DType::f32, {2}, std::vector<double>{10, -20});
  Node node{.op = Op::linear, .output = "q", .inputs = {"x"}, .weight = "w", .heads_out = 2, .bias = "b"};
  const Array x{{1, 2, 3}, {1, 1, 1, 2, 0, 0}};
  const auto y = evaluate_node(node, {x}, context);
  ASSERT_TRUE(y) << to_string(y.error());
  EXPECT_EQ(y->shape, (Shape{1, 2, 2, 1}));
  EXPECT_EQ(y->values, (std::vector<double>{16, 12, -5, -12}));
  context.bias = Tensor::zeros(DType::f32, {3});
  EXPECT_EQ(evaluate_node(node, {x}, context).error().id, "tensor-layout");
  context.bias = {};
  EXPECT_EQ(evaluate_node(node, {x}, context).error().id, "tensor-layout");

  const Node scaled{.op = Op::scale, .output = "y", .inputs = {"x"}, .weight = {}, .factor = std::sqrt(640.0)};
  EXPECT_EQ(evaluate_node(scaled, {{{1}, {2}}}, context)->values[0], 2 * std::sqrt(640.0));
  context.dtype = DType::bf16;
  EXPECT_EQ(evaluate_node(scaled, {{{1}, {2}}}, context)->values[0], 50.5);
}

TEST(EvaluateNode, TakesTheFormsOfGemma4) {
  const auto facts = tiny_llama_facts();
  NodeContext context;
  context.facts = &facts;
  context.dtype = DType::bf16;
  const Array x{{1, 2, 1, 2}, {3, 4, 6, 8}};
  // A norm without a weight; a learned scalar is taken as it is, whatever the dtype of constants.
  const Node norm{.op = Op::rms_norm, .output = "v_norm", .inputs = {"v"}, .weight = {}, .unscaled = true};
  const auto normed = evaluate_node(norm, {x}, context);
  ASSERT_TRUE(normed) << to_string(normed.error());
  for (std::size_t i = 0; i < 4; ++i) {
    const double root = std::sqrt((i < 2 ? 12.5 : 50) + facts.norm_epsilon);
    EXPECT_NEAR(normed->values[i], x.values[i] / root, 4 * rounding_of(DType::f64).unit);
  }
  Node scalar{.op = Op::scale, .output = "residual", .inputs = {"x"}, .weight = "w"};
  context.weight = Tensor::from_values(DType::f32, {1}, std::vector<double>{0.1});
  EXPECT_EQ(evaluate_node(scalar, {x}, context)->values[0], 3 * static_cast<double>(0.1F));
  context.weight = Tensor::zeros(DType::f32, {2});
  EXPECT_EQ(evaluate_node(scalar, {x}, context).error().id, "tensor-layout");
  context.weight = {};
  EXPECT_EQ(evaluate_node(scalar, {x}, context).error().id, "tensor-layout");

  context.tokens = {{1, 0}};
  context.weight = Tensor::from_values(DType::f32, {2, 4}, std::vector<double>{0, 1, 2, 3, 10, 11, 12, 13});
  Node table{.op = Op::embedding, .output = "per_layer_embed", .inputs = {}, .weight = "w", .heads_out = 2};
  const auto heads = evaluate_node(table, {}, context);
  ASSERT_TRUE(heads) << to_string(heads.error());
  EXPECT_EQ(heads->shape, (Shape{1, 2, 2, 2}));
  EXPECT_EQ(heads->values, (std::vector<double>{10, 11, 0, 1, 12, 13, 2, 3}));
  Node select{.op = Op::select_head, .output = "per_layer_input", .inputs = {"per_layer_inputs"}, .weight = {}, .head = 1};
  const auto one = evaluate_node(select, {*heads}, context);
  ASSERT_TRUE(one) << to_string(one.error());
  EXPECT_EQ(one->shape, (Shape{1, 2, 2}));
  EXPECT_EQ(one->values, (std::vector<double>{12, 13, 2, 3}));
  select.head = 2;
  EXPECT_EQ(evaluate_node(select, {*heads}, context).error().id, "tensor-layout");
  select.head = 0;
  EXPECT_EQ(evaluate_node(select, {*one}, context).error().id, "tensor-layout");
  table.heads_out = 3;
  EXPECT_EQ(evaluate_node(table, {}, context).error().id, "tensor-layout");
}

TEST(EvaluateNode, RefusesShapesThatDoNotFit) {
  const auto facts = tiny_llama_facts();
  const auto zeros = [](Shape shape) {
    const auto count = static_cast<std::size_t>(element_count(shape));
    return Array{std::move(shape), std::vector<double>(count)};
  };
  NodeContext good;
  good.facts = &facts;
  good.tokens = {{1, 2}};
  good.at = {.sequence = {0}, .position = {{0, 1}}, .slot = {{0, 1}}};
  const auto id_of = [&](Op op, const std::vector<Array>& inputs, auto change, int heads_out = 0) -> std::string {
    auto context = good;
    change(context);
    const Node node{.op = op, .output = "tap", .inputs = {}, .weight = {}, .layer = -1, .heads_out = heads_out};
    const auto result = evaluate_node(node, inputs, context);
    return result ? "" : result.error().id;
  };
  const auto nothing = [](NodeContext&) {};
  const auto weight = [](Shape shape) { return [shape](NodeContext& context) { context.weight = Tensor::zeros(DType::f32, shape); }; };
  const auto heads = zeros({1, 6, 2, 8});
  const auto kv = zeros({1, 3, 2, 8});
  const auto x = zeros({1, 2, 48});

  EXPECT_EQ(id_of(Op::embedding, {}, weight({97, 48})), "");
  EXPECT_EQ(id_of(Op::embedding, {}, nothing), "tensor-layout");
  EXPECT_EQ(id_of(Op::embedding, {}, weight({2, 48})), "tokens-invalid");
  EXPECT_EQ(id_of(Op::embedding, {}, [&](NodeContext& c) { weight({97, 48})(c), c.tokens = {{-1}}; }), "tokens-invalid");
  EXPECT_EQ(id_of(Op::embedding, {}, [&](NodeContext& c) { weight({97, 48})(c), c.tokens = {{1, 2}, {3}}; }), "tensor-layout");
  EXPECT_EQ(id_of(Op::rms_norm, {x}, weight({48})), "");
  EXPECT_EQ(id_of(Op::rms_norm, {x}, weight({47})), "tensor-layout");
  EXPECT_EQ(id_of(Op::rms_norm, {x}, weight({48, 1})), "tensor-layout");
  EXPECT_EQ(id_of(Op::rms_norm, {x, x}, weight({48})), "tensor-layout");
  EXPECT_EQ(id_of(Op::linear, {x}, weight({24, 48}), 3), "");
  EXPECT_EQ(id_of(Op::linear, {heads}, weight({24, 48})), "");
  EXPECT_EQ(id_of(Op::linear, {x}, weight({24, 48}), 5), "tensor-layout");
  EXPECT_EQ(id_of(Op::linear, {x}, weight({48, 24})), "tensor-layout");
  EXPECT_EQ(id_of(Op::linear, {zeros({2, 48})}, weight({24, 48})), "tensor-layout");
  EXPECT_EQ(id_of(Op::rope, {heads}, nothing), "");
  EXPECT_EQ(id_of(Op::rope, {zeros({1, 6, 2, 7})}, nothing), "tensor-layout");
  EXPECT_EQ(id_of(Op::rope, {heads}, [](NodeContext& c) { c.at.position = {{0}}; }), "tensor-layout");
  EXPECT_EQ(id_of(Op::cache_write, {kv}, nothing), "");
  EXPECT_EQ(id_of(Op::cache_write, {kv}, [](NodeContext& c) { c.cache = Tensor::zeros(DType::f32, {1, 3, 5, 8}); }), "");
  EXPECT_EQ(id_of(Op::cache_write, {kv}, [](NodeContext& c) { c.cache = Tensor::zeros(DType::f32, {1, 2, 5, 8}); }), "tensor-layout");
  EXPECT_EQ(id_of(Op::sdpa, {heads, kv, kv}, nothing), "");
  EXPECT_EQ(id_of(Op::sdpa, {heads, kv, zeros({1, 3, 1, 8})}, nothing), "tensor-layout");
  EXPECT_EQ(id_of(Op::sdpa, {zeros({1, 4, 2, 8}), kv, kv}, nothing), "tensor-layout");
  EXPECT_EQ(id_of(Op::sdpa, {heads, kv, kv}, [](NodeContext& c) { c.at.slot = {{0, 1, 2}}; }), "tensor-layout");
  EXPECT_EQ(id_of(Op::add, {x, x}, nothing), "");
  EXPECT_EQ(id_of(Op::add, {x, zeros({1, 48, 2})}, nothing), "tensor-layout");
  EXPECT_EQ(id_of(Op::swiglu, {x, {{1, 2, 48}, {}}}, nothing), "tensor-layout");
}

}  // namespace
}  // namespace culprit
