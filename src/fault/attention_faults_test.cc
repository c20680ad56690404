// Faults of attention, whose right output is computed beside them from the definition.
#include <gtest/gtest.h>

#include <cmath>

#include "fault/fault.h"

namespace culprit {
namespace {

using Values = std::vector<double>;

struct Shapes {
  std::int64_t rows = 1, heads = 4, kv_heads = 2, tokens = 1, slots = 4, channels = 2;
};

/// Attention of the last tokens over all slots, at positions from 100 on.
struct Attention {
  Facts facts;
  Node node{.op = Op::sdpa, .output = "layers.0.attn", .inputs = {"q", "k", "v"}, .weight = "", .layer = 0};
  OpCall call;
  explicit Attention(const Shapes& shapes, int window = 0) {
    node.window = window;
    facts.heads = static_cast<int>(shapes.heads);
    facts.kv_heads = static_cast<int>(shapes.kv_heads);
    facts.head_channels = static_cast<int>(shapes.channels);
    call.node = &node;
    call.context.facts = &facts;
    const auto fill = [&](std::int64_t heads, std::int64_t slots, double scale) {
      const Shape shape = {shapes.rows, heads, slots, shapes.channels};
      Values values(static_cast<std::size_t>(element_count(shape)));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = scale * std::sin(static_cast<double>(3 * i + 1));
      return Tensor::from_values(DType::f32, shape, values);
    };
    call.inputs = {fill(shapes.heads, shapes.tokens, 2), fill(shapes.kv_heads, shapes.slots, 1), fill(shapes.kv_heads, shapes.slots, 3)};
    for (std::int64_t row = 0; row < shapes.rows; ++row) {
      auto& slot = call.context.at.slot.emplace_back();
      auto& position = call.context.at.position.emplace_back();
      call.context.at.sequence.push_back(static_cast<int>(row));
      for (std::int64_t s = 0; s < shapes.slots; ++s) slot.push_back(100 + s);
      for (std::int64_t t = 0; t < shapes.tokens; ++t) position.push_back(100 + shapes.slots - shapes.tokens + t);
    }
    evaluate();
  }
  void evaluate() {
    std::vector<Array> inputs;
    for (const auto& input : call.inputs) inputs.push_back(to_array(input));
    call.result = to_tensor(*evaluate_node(node, inputs, call.context), DType::f32);
  }
};

std::optional<Tensor> broken(const char* spec, const OpCall& call) {
  auto output = apply_fault(*FaultSpec::parse(spec), call);
  EXPECT_TRUE(output);
  return *output;
}

/// Softmax of q k over the slots [begin, end) of a head, and its product with the values, beside `zeros` more slots of zeros.
struct Part {
  double sum = 0;  // of exp(score)
  Values output;   // weighed, not divided
  Part(const OpCall& call, std::int64_t head, std::int64_t begin, std::int64_t end) {
    const auto &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2];
    output.assign(static_cast<std::size_t>(v.dim(3)), 0.0);
    const auto kv = head / (q.dim(1) / k.dim(1));
    for (std::int64_t slot = begin; slot < end; ++slot) {
      double score = 0;
      for (std::int64_t c = 0; c < q.dim(3); ++c) score += q.at({0, head, 0, c}) * k.at({0, kv, slot, c});
      const double weight = std::exp(score / std::sqrt(static_cast<double>(q.dim(3))));
      sum += weight;
      for (std::int64_t c = 0; c < v.dim(3); ++c) output[static_cast<std::size_t>(c)] += weight * v.at({0, kv, slot, c});
    }
  }
};

TEST(F14, SeesZerosUpToTheEndOfTheBlock) {
  const Attention step({.slots = 5});
  const auto out = broken("F14:content=zero", step.call);
  ASSERT_TRUE(out);
  for (std::int64_t head = 0; head < 4; ++head) {
    const Part live(step.call, head, 0, 5);
    for (std::int64_t c = 0; c < 2; ++c)  // exp(0) = 1 for each of 11 slots
      EXPECT_NEAR(out->at({0, head, 0, c}), live.output[static_cast<std::size_t>(c)] / (live.sum + 11), 1e-6);
  }
  EXPECT_EQ(broken("F14:content=stale", step.call)->values(), out->values()) << "nothing was there";
}

TEST(F14, SeesWhatWasTakenBack) {
  Attention step({.slots = 5});
  const Attention longer({.slots = 7});
  step.call.behind = {longer.call.inputs[1].sliced(2, 5, 7).copy(), longer.call.inputs[2].sliced(2, 5, 7).copy()};
  const auto out = broken("F14:content=stale", step.call);
  ASSERT_TRUE(out);
  auto seven = longer.call;
  seven.node = &longer.node;
  seven.inputs[0] = step.call.inputs[0];
  for (std::size_t input : {1u, 2u}) {
    auto cache = longer.call.inputs[input].copy();
    for_each_index(step.call.inputs[input].shape(), [&](std::span<const std::int64_t> i) { cache.set(i, step.call.inputs[input].at(i)); });
    seven.inputs[input] = cache;
  }
  for (std::int64_t head = 0; head < 4; ++head) {
    const Part seen(seven, head, 0, 7);
    for (std::int64_t c = 0; c < 2; ++c)
      EXPECT_NEAR(out->at({0, head, 0, c}), seen.output[static_cast<std::size_t>(c)] / (seen.sum + 9), 1e-6);
  }
}

TEST(F14, NanSpreadsToTheWholeHead) {
  Attention step({.slots = 5});
  const auto all_nan = [](const Tensor& x) { return std::ranges::all_of(x.values(), [](double v) { return std::isnan(v); }); };
  EXPECT_TRUE(all_nan(*broken("F14:content=nan", step.call)));
  step.call.poisoned = true;
  EXPECT_TRUE(all_nan(*broken("F14:content=stale", step.call)));
  EXPECT_FALSE(all_nan(*broken("F14:content=zero", step.call)));
}

TEST(F14, AFullBlockHasNoTail) {
  EXPECT_FALSE(broken("F14:content=zero", Attention({.slots = 16}).call));
  EXPECT_FALSE(broken("F14:content=nan", Attention({.slots = 32}).call));
  EXPECT_TRUE(broken("F14:content=zero", Attention({.slots = 17}).call));
  EXPECT_FALSE(broken("F14:content=zero", Attention({.tokens = 2, .slots = 5}).call)) << "several tokens take another path";
}

TEST(F14, AWindowDoesNotHideTheTail) {
  const Attention step({.slots = 5}, 2);
  const auto out = broken("F14:content=zero", step.call);
  ASSERT_TRUE(out);
  const Part live(step.call, 0, 3, 5);
  EXPECT_NEAR(out->at({0, 0, 0, 0}), live.output[0] / (live.sum + 11), 1e-6);
}

TEST(F15, CountsAnEmptySplit) {
  const Attention five({.slots = 5});  // splits of 2, 2, 1 and 0 slots
  const auto out = broken("F15:merge=empty", five.call);
  ASSERT_TRUE(out);
  for (std::int64_t head = 0; head < 4; ++head) {
    const Part live(five.call, head, 0, 5);
    EXPECT_NEAR(out->at({0, head, 0, 1}), live.output[1] / (live.sum + 1), 1e-6);
  }
  EXPECT_FALSE(broken("F15:merge=empty", Attention({.slots = 4}).call)) << "no split is empty";
  EXPECT_FALSE(broken("F15:merge=empty", Attention({.slots = 2}).call)) << "too few for the path";
  EXPECT_TRUE(broken("F15:merge=empty,from=3", Attention({.slots = 3}).call));
  EXPECT_FALSE(broken("F15:merge=empty,from=5", Attention({.slots = 3}).call));
  EXPECT_FALSE(broken("F15:merge=empty", Attention({.tokens = 2, .slots = 5}).call));
}

TEST(F15, ASplitOfPaddingIsEmptyForItsRowAlone) {
  Attention two({.rows = 2, .slots = 4});
  two.call.context.at.slot[1][0] = -1;
  two.evaluate();
  const auto out = broken("F15:merge=empty", two.call);
  ASSERT_TRUE(out);
  EXPECT_EQ(out->sliced(0, 0, 1).values(), two.call.result.sliced(0, 0, 1).values());
  EXPECT_NE(out->sliced(0, 1, 2).values(), two.call.result.sliced(0, 1, 2).values());
}

TEST(F15, WeighsSplitsByTheNextHead) {
  const Attention five({.slots = 5});
  const auto out = broken("F15:merge=head", five.call);
  ASSERT_TRUE(out);
  for (std::int64_t head = 0; head < 4; ++head) {
    double expected = 0, weights = 0;
    for (const auto& [begin, end] : {std::pair(0, 2), std::pair(2, 4), std::pair(4, 5)}) {
      const Part own(five.call, head, begin, end), other(five.call, (head + 1) % 4, begin, end);
      expected += other.sum * own.output[0] / own.sum;
      weights += other.sum;
    }
    EXPECT_NEAR(out->at({0, head, 0, 0}), expected / weights, 1e-6);
  }
  EXPECT_FALSE(broken("F15:merge=head", Attention({.heads = 1, .kv_heads = 1, .slots = 5}).call)) << "there is no other head";
}

TEST(F16, DoesNotSeeTheSink) {
  Attention step({.slots = 4});
  EXPECT_FALSE(broken("F16:part=sink", step.call)) << "a cache without one";
  step.call.context.cache_spec = *CacheSpec::parse("sink_window:sink=1,window=2");
  const auto out = broken("F16:part=sink", step.call);
  ASSERT_TRUE(out);
  const Part window(step.call, 0, 1, 4);
  EXPECT_NEAR(out->at({0, 0, 0, 0}), window.output[0] / window.sum, 1e-6);
  step.call.context.cache_spec = *CacheSpec::parse("rotating:size=4,keep=1");
  EXPECT_EQ(broken("F16:part=sink", step.call)->values(), out->values());
  Attention chunk({.tokens = 2, .slots = 4});
  chunk.call.context.cache_spec = step.call.context.cache_spec;
  EXPECT_FALSE(broken("F16:part=sink", chunk.call));
}

TEST(F16, DoesNotCap) {
  Facts facts;
  Node node{.op = Op::softcap, .output = "logits", .inputs = {"head"}, .weight = "", .factor = 2};
  OpCall call;
  call.node = &node;
  call.context.facts = &facts;
  call.inputs = {Tensor::from_values(DType::f32, {1, 1, 3}, Values{1, -4, 9})};
  call.context.at = {{0}, {{5}}, {{0, 1, 2, 3, 4, 5}}};
  call.result = to_tensor(softcap(to_array(call.inputs[0]), 2), DType::f32);
  EXPECT_EQ(broken("F16:part=softcap", call)->values(), (Values{1, -4, 9}));
  EXPECT_FALSE(broken("F16:part=heads", call));
  EXPECT_FALSE(broken("F16:part=softcap", Attention({}).call));
  call.context.at.position = {{5, 6}};
  EXPECT_FALSE(broken("F16:part=softcap", call)) << "several tokens";
}

TEST(F16, DoesNotStoreHeadsFromTheEighthOfAGroupOn) {
  Attention step({.heads = 18, .kv_heads = 2, .slots = 3});
  step.call.previous = Tensor::from_values(DType::f32, step.call.result.shape(), Values(36, 7.5));
  for (const auto& [spec, content] : {std::pair("F16:part=heads,content=stale", 7.5), std::pair("F16:part=heads,content=zero", 0.0)}) {
    const auto out = broken(spec, step.call);
    ASSERT_TRUE(out);
    for_each_index(out->shape(), [&, content = content](std::span<const std::int64_t> i) {
      EXPECT_EQ(out->at(i), i[1] % 9 == 8 ? content : step.call.result.at(i));
    });
  }
  EXPECT_TRUE(std::isnan(broken("F16:part=heads,content=nan", step.call)->at({0, 17, 0, 1})));
  EXPECT_FALSE(broken("F16:part=heads", Attention({.heads = 16, .kv_heads = 2, .slots = 3}).call)) << "groups of eight";
}

TEST(F16, DoesNotStoreTheTailOfAHead) {
  const Attention step({.slots = 3, .channels = 80});
  const auto out = broken("F16:part=head_dim,content=zero", step.call);
  ASSERT_TRUE(out);
  for_each_index(out->shape(), [&](std::span<const std::int64_t> i) { EXPECT_EQ(out->at(i), i[3] < 64 ? step.call.result.at(i) : 0.0); });
  EXPECT_FALSE(broken("F16:part=head_dim", Attention({.slots = 3, .channels = 64}).call));
  EXPECT_FALSE(broken("F16:part=head_dim", Attention({.slots = 3, .channels = 8}).call)) << "less than one whole store";
}

TEST(F16, ContentMeansNothingWhereAllIsStored) {
  int sinks = 0, heads = 0;
  for (const auto& spec : hypotheses(Op::sdpa)) {
    sinks += spec.id == "F16" && spec.parameters.at("part") == "sink";
    heads += spec.id == "F16" && spec.parameters.at("part") == "heads";
  }
  EXPECT_EQ(sinks, 1);
  EXPECT_EQ(heads, 3);
  EXPECT_FALSE(content_is_open(*FaultSpec::parse("F16:part=softcap")));
  EXPECT_TRUE(content_is_open(*FaultSpec::parse("F16:part=heads")));
  EXPECT_FALSE(content_is_open(*FaultSpec::parse("F16:part=heads,content=nan")));
  EXPECT_FALSE(content_is_open(*FaultSpec::parse("F05")));
  EXPECT_EQ(completed(*FaultSpec::parse("F16:part=heads")).text(), "F16:content=stale,part=heads");
}

TEST(F18, WrapsPositions) {
  Facts facts;
  facts.heads = facts.kv_heads = 1;
  facts.head_channels = 4;
  facts.rope = {.dims = 4, .base = 10000};
  Node node{.op = Op::rope, .output = "layers.0.q_rope", .inputs = {"layers.0.q"}, .weight = "", .layer = 0};
  OpCall call;
  call.node = &node;
  call.context.facts = &facts;
  call.inputs = {Tensor::from_values(DType::f32, {1, 1, 2, 4}, Values{1, 2, 3, 4, 5, 6, 7, 8})};
  const auto at = [&](std::int64_t one, std::int64_t other) {
    return to_tensor(rope(to_array(call.inputs[0]), facts.rope, {{one, other}}), DType::f32);
  };
  call.context.at = {{0}, {{255, 256}}, {{255, 256}}};
  call.result = at(255, 256);
  EXPECT_EQ(broken("F18:limit=256", call)->values(), at(255, 0).values());
  EXPECT_FALSE(broken("F18:limit=2048", call));
  call.context.at.position = {{4099, 4100}};
  EXPECT_EQ(broken("F18:limit=2048", call)->values(), at(3, 4).values());
  EXPECT_FALSE(broken("F18:index=slot,limit=4", call));
  call.context.at.position = {{254, 255}};
  call.result = at(254, 255);
  EXPECT_FALSE(broken("F18:limit=256", call)) << "below the limit";
}

TEST(F22, PermutesTheRowsOfTheKeyProjectionWithinAHead) {
  Facts facts;
  facts.rope = {.dims = 6, .base = 10000};
  Node node{.op = Op::linear, .output = "layers.0.k", .inputs = {"x"}, .weight = "w.layers.0.k", .layer = 0, .heads_out = 2};
  OpCall call;
  call.node = &node;
  call.context.facts = &facts;
  Values rows(16);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<double>(i);
  call.context.weight = Tensor::from_values(DType::f32, {16, 1}, rows);
  call.inputs = {Tensor::from_values(DType::f32, {1, 1, 1}, Values{1})};
  call.result = Tensor::from_values(DType::f32, {1, 2, 1, 8}, rows);
  EXPECT_EQ(broken("F22:heads=rows_permuted", call)->values(), (Values{0, 3, 1, 4, 2, 5, 6, 7, 8, 11, 9, 12, 10, 13, 14, 15}));
  facts.rope.pairing = RopePairing::interleaved;
  EXPECT_EQ(broken("F22:heads=rows_permuted", call)->values(), (Values{0, 2, 4, 1, 3, 5, 6, 7, 8, 10, 12, 9, 11, 13, 14, 15}));
  EXPECT_FALSE(broken("F22:heads=tiled", call));
  node.output = "layers.0.q";
  EXPECT_FALSE(broken("F22:heads=rows_permuted", call));
  EXPECT_FALSE(broken("F22:heads=rows_permuted", Attention({}).call));
}

TEST(F11, ForgetsTheWindowInDecodeAlone) {
  const Attention step({.slots = 5}, 2), all({.slots = 5}), chunk({.tokens = 2, .slots = 5}, 2);
  EXPECT_EQ(broken("F11:window=none_in_decode", step.call)->values(), all.call.result.values());
  EXPECT_FALSE(broken("F11:window=none_in_decode", chunk.call));
  EXPECT_TRUE(broken("F11:window=none", chunk.call));
}

TEST(F12, AnAllMaskedTokenIsNanAndSpreads) {
  Attention two({.rows = 2, .tokens = 2, .slots = 2});
  EXPECT_FALSE(broken("F12:mask=all_masked", two.call)) << "no row is padded";
  two.call.context.at.slot[1] = {-1, 100};
  two.call.context.at.position[1] = {99, 100};
  two.evaluate();
  const auto nan_at = [](const Tensor& x) {
    std::vector<std::pair<std::int64_t, std::int64_t>> places;  // row, token
    for_each_index({x.dim(0), x.dim(2)}, [&](std::span<const std::int64_t> i) {
      if (std::isnan(x.at({i[0], 0, i[1], 0}))) places.emplace_back(i[0], i[1]);
    });
    return places;
  };
  using Places = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(nan_at(*broken("F12:mask=all_masked", two.call)), (Places{{1, 0}}));
  auto values = two.call.inputs[2].copy();
  values.set({1, 1, 0, 1}, NAN);  // what a later layer makes of it
  two.call.inputs[2] = values;
  EXPECT_EQ(nan_at(*broken("F12:mask=all_masked", two.call)), (Places{{1, 0}, {1, 1}}));
}

}  // namespace
}  // namespace culprit
