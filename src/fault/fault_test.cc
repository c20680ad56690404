#include "fault/fault.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "decode/model.h"
#include "fault/packed_call.h"

namespace culprit {
namespace {

Facts facts() {
  Facts f;
  f.heads = 3;
  f.kv_heads = 3;
  f.head_channels = 4;
  f.rope = {.dims = 4, .base = 10000};
  return f;
}

// A RoPE call [rows, 3 heads, tokens, 4 channels] at positions from `base` on, `cached` tokens in the cache before it.
struct RopeCall {
  Facts f = facts();
  Node node{.op = Op::rope, .output = "layers.0.q_rope", .inputs = {"layers.0.q"}, .weight = "", .layer = 0};
  OpCall call;
  RopeCall(std::int64_t rows, std::int64_t tokens, std::int64_t base, std::int64_t cached, DType dtype = DType::f32) {
    const Shape shape = {rows, f.heads, tokens, f.head_channels};
    std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1 + static_cast<double>(i % 7);
    call.node = &node;
    call.inputs = {Tensor::from_values(dtype, shape, values)};
    call.context.facts = &f;
    call.dtype = dtype;
    for (std::int64_t row = 0; row < rows; ++row) {
      call.context.at.sequence.push_back(static_cast<int>(row));
      auto& positions = call.context.at.position.emplace_back();
      auto& slots = call.context.at.slot.emplace_back();
      for (std::int64_t p = base - cached; p < base; ++p) slots.push_back(p);
      for (std::int64_t t = 0; t < tokens; ++t) {
        positions.push_back(base + t);
        slots.push_back(base + t);
      }
    }
    call.result = to_tensor(rope(to_array(call.inputs[0]), f.rope, call.context.at.position), dtype);
  }
};

Result<std::optional<Tensor>> apply(const char* spec, const OpCall& call) { return apply_fault(*FaultSpec::parse(spec), call); }

TEST(Fault, SpecsRoundTripAndRefuseWhatIsUnknown) {
  EXPECT_EQ(FaultSpec::parse("F01:content=zero")->text(), "F01:content=zero");
  EXPECT_EQ(FaultSpec::parse("F01")->parameter("content", ""), "input");
  EXPECT_EQ(FaultSpec::parse("F99").error().id, "fault-unknown");
  EXPECT_EQ(FaultSpec::parse("F01:content=purple").error().id, "fault-parameter");
  EXPECT_EQ(FaultSpec::parse("F01:colour=zero").error().id, "fault-parameter");
  EXPECT_EQ(FaultSpec::parse("F01:content").error().id, "fault-parameter");
}

TEST(Fault, EveryEntryIsWholeAndEveryHypothesisParses) {
  for (const auto& entry : fault_catalogue()) {
    EXPECT_EQ(find_fault(entry.id), &entry);
    EXPECT_FALSE(entry.ops.empty());
    for (const auto text : {entry.title, entry.mechanism, entry.trigger, entry.public_example}) EXPECT_FALSE(text.empty()) << entry.id;
    for (const auto op : entry.ops)
      for (const auto& spec : hypotheses(op)) EXPECT_TRUE(FaultSpec::parse(spec.text())) << spec.text();
  }
}

TEST(F01, LeavesRowsAboveZeroInRank4) {
  const RopeCall three(3, 1, 5, 2);
  const auto out = apply("F01:content=zero", three.call);
  ASSERT_TRUE(out && *out);
  for_each_index((*out)->shape(),
                 [&](std::span<const std::int64_t> i) { EXPECT_EQ((*out)->at(i), i[0] == 0 ? three.call.result.at(i) : 0.0); });
}

TEST(F01, LeavesHeadsAboveZeroAfterACollapse) {
  RopeCall one(1, 1, 5, 2);
  one.call.collapsed_rank = 3;
  const auto out = apply("F01:content=input", one.call);
  ASSERT_TRUE(out && *out);
  for_each_index((*out)->shape(), [&](std::span<const std::int64_t> i) {
    EXPECT_EQ((*out)->at(i), i[1] == 0 ? one.call.result.at(i) : one.call.inputs[0].at(i));
  });
}

TEST(F01, StaleContentIsWhatTheBufferHeld) {
  RopeCall three(3, 1, 5, 2);
  three.call.previous = Tensor::from_values(DType::f32, three.call.result.shape(), std::vector<double>(36, 7.5));
  const auto out = apply("F01:content=stale", three.call);
  ASSERT_TRUE(out && *out);
  EXPECT_EQ((*out)->at({2, 1, 0, 3}), 7.5);
  three.call.previous = Tensor();
  EXPECT_EQ((*apply("F01:content=stale", three.call))->at({2, 1, 0, 3}), 0.0);
}

TEST(F01, IsNotTriggeredByWhatThePathDoesNotTake) {
  EXPECT_FALSE(*apply("F01", RopeCall(1, 1, 5, 2).call)) << "one row in rank 4 is all of it";
  EXPECT_FALSE(*apply("F01", RopeCall(3, 2, 5, 2).call)) << "two tokens";
  RopeCall vector(3, 1, 5, 2);
  vector.call.per_row_offset = true;
  EXPECT_FALSE(*apply("F01", vector.call)) << "an offset with more than one element";
}

TEST(F01, ReferenceFiguresOfTheMetalPath) {
  // B = 2, H = 16, D = 256 in f32: half of the output is non-zero.
  RopeCall published(2, 1, 5, 1);
  published.f.heads = 16;
  published.f.head_channels = 256;
  published.f.rope.dims = 256;
  const Shape shape = {2, 16, 1, 256};
  std::vector<double> values(2 * 16 * 256);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1 + static_cast<double>(i % 5);
  published.call.inputs = {Tensor::from_values(DType::f32, shape, values)};
  published.call.result =
      to_tensor(rope(to_array(published.call.inputs[0]), published.f.rope, published.call.context.at.position), DType::f32);
  const auto out = apply("F01:content=zero", published.call);
  ASSERT_TRUE(out && *out);
  const auto seen = (*out)->values();
  EXPECT_EQ(std::ranges::count_if(seen, [](double v) { return v != 0; }), 2 * 16 * 256 / 2);
}

TEST(F05AndF08, RotateAtAnotherPosition) {
  const RopeCall step(1, 1, 9, 3);
  const auto at = [&](std::int64_t position) {
    return to_tensor(rope(to_array(step.call.inputs[0]), step.f.rope, {{position}}), DType::f32).values();
  };
  EXPECT_EQ((*apply("F05", step.call))->values(), at(10));
  EXPECT_EQ((*apply("F08:position=zero", step.call))->values(), at(0));
  EXPECT_EQ((*apply("F08:position=cache_length", step.call))->values(), at(3));
  RopeCall key(1, 1, 9, 3);
  key.node.output = "layers.0.k_rope";
  EXPECT_FALSE(*apply("F05", key.call)) << "keys are right";
  EXPECT_FALSE(*apply("F08", RopeCall(1, 1, 9, 0).call)) << "an empty cache: position 0 may be legitimate";
  EXPECT_FALSE(*apply("F08", RopeCall(1, 2, 9, 3).call)) << "not a single-token step";
}

TEST(F09, TakesTheRotationOfTheNode) {
  RopeCall local(1, 1, 5, 1);
  local.f.rope.scaling = RopeScaling::linear;
  local.f.rope.factor = 8;
  local.f.rope_local = facts().rope;
  local.call.result = to_tensor(rope(to_array(local.call.inputs[0]), local.f.rope, local.call.context.at.position), DType::f32);
  EXPECT_TRUE(*apply("F09:table=unscaled", local.call));
  local.node.rope_local = true;
  EXPECT_FALSE(*apply("F09:table=unscaled", local.call)) << "the local rotation is not scaled";
}

TEST(F09, CollapsesPositionsOnlyIn16Bits) {
  EXPECT_FALSE(*apply("F09:table=dtype", RopeCall(1, 1, 257, 1).call));
  const auto at_256 = *apply("F09:table=dtype", RopeCall(1, 1, 256, 1, DType::bf16).call);
  const auto at_257 = *apply("F09:table=dtype", RopeCall(1, 1, 257, 1, DType::bf16).call);
  ASSERT_TRUE(at_256 && at_257);
  EXPECT_EQ(at_256->values(), at_257->values()) << "257 is a tie in 8 bits of mantissa and rounds to the even 256";
}

TEST(F02, ReadsTheStorageLinearly) {
  RopeCall two(1, 2, 5, 0);
  EXPECT_FALSE(*apply("F02", two.call)) << "a dense input";
  // The layout of real engines: [row, token, head, channel] with the axes swapped.
  const auto dense = Tensor::from_values(DType::f32, {1, 2, 3, 4}, two.call.inputs[0].values());
  two.call.inputs = {dense.transposed(1, 2)};
  two.call.result = to_tensor(rope(to_array(two.call.inputs[0]), two.f.rope, two.call.context.at.position), DType::f32);
  const auto out = apply("F02", two.call);
  ASSERT_TRUE(out && *out);
  const auto linear = to_array(Tensor::from_values(DType::f32, {1, 3, 2, 4}, dense.values()));
  EXPECT_EQ((*out)->values(), to_tensor(rope(linear, two.f.rope, two.call.context.at.position), DType::f32).values());
}

TEST(Tap, RestrictsWhereAFaultApplies) {
  const RopeCall three(3, 1, 5, 2);
  EXPECT_TRUE(*apply("F01:tap=layers.*.q_rope", three.call));
  EXPECT_FALSE(*apply("F01:tap=layers.*.k_rope", three.call));
}

// Attention and cache faults on a small call with two kv heads for four query heads.
struct AttentionCall {
  Facts f;
  Node node{.op = Op::sdpa, .output = "layers.0.attn", .inputs = {"q", "k", "v"}, .weight = "", .layer = 0};
  OpCall call;
  explicit AttentionCall(std::int64_t rows, std::int64_t tokens, std::int64_t cached, int window = 0) {
    node.window = window;
    f.heads = 4;
    f.kv_heads = 2;
    f.head_channels = 2;
    call.node = &node;
    call.context.facts = &f;
    const auto fill = [](Shape shape, double scale) {
      std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = scale * std::sin(static_cast<double>(3 * i + 1));
      return Tensor::from_values(DType::f32, shape, values);
    };
    const auto slots = cached + tokens;
    call.inputs = {fill({rows, 4, tokens, 2}, 2), fill({rows, 2, slots, 2}, 1), fill({rows, 2, slots, 2}, 3)};
    for (std::int64_t row = 0; row < rows; ++row) {
      call.context.at.sequence.push_back(static_cast<int>(row));
      auto& position = call.context.at.position.emplace_back();
      auto& slot = call.context.at.slot.emplace_back();
      for (std::int64_t p = 0; p < slots; ++p) slot.push_back(100 + p);
      for (std::int64_t t = 0; t < tokens; ++t) position.push_back(100 + cached + t);
    }
    std::vector<Array> inputs;
    for (const auto& input : call.inputs) inputs.push_back(to_array(input));
    call.result = to_tensor(*evaluate_node(node, inputs, call.context), DType::f32);
  }
};

TEST(F04, TakesRowZeroForAllRows) {
  const AttentionCall two(2, 1, 3);
  const auto out = apply("F04:tokens=any", two.call);
  ASSERT_TRUE(out && *out);
  for (std::int64_t h = 0; h < 4; ++h) EXPECT_EQ((*out)->at({0, h, 0, 0}), two.call.result.at({0, h, 0, 0}));
  EXPECT_NE((*out)->at({1, 0, 0, 0}), two.call.result.at({1, 0, 0, 0}));
  EXPECT_FALSE(*apply("F04:tokens=one", AttentionCall(2, 2, 3).call));
  EXPECT_FALSE(*apply("F04", AttentionCall(1, 1, 3).call));
}

TEST(F12, MisalignsTheMaskOfAChunk) {
  const AttentionCall chunk(1, 2, 3);
  const auto top_left = apply("F12:mask=top_left", chunk.call);
  ASSERT_TRUE(top_left && *top_left);
  // The first token then sees slot 0 only: its output is that value.
  for (std::int64_t h = 0; h < 4; ++h) EXPECT_EQ((*top_left)->at({0, h, 0, 1}), chunk.call.inputs[2].at({0, h / 2, 0, 1}));
  const auto none = apply("F12:mask=none", chunk.call);
  ASSERT_TRUE(none && *none);
  for (std::int64_t h = 0; h < 4; ++h)
    EXPECT_EQ((*none)->at({0, h, 1, 0}), chunk.call.result.at({0, h, 1, 0})) << "the last token sees all anyway";
  EXPECT_FALSE(*apply("F12:mask=top_left", AttentionCall(1, 2, 0).call)) << "square: both alignments agree";
  EXPECT_FALSE(*apply("F12:mask=none", AttentionCall(1, 1, 3).call));
}

TEST(F11, WidensOrForgetsTheWindow) {
  const auto wider = AttentionCall(1, 1, 4, 3).call.result.values(), all = AttentionCall(1, 1, 4).call.result.values();
  const AttentionCall two(1, 1, 4, 2);
  EXPECT_EQ((*apply("F11:window=plus_one", two.call))->values(), wider);
  EXPECT_EQ((*apply("F11:window=none", two.call))->values(), all);
  EXPECT_FALSE(*apply("F11", AttentionCall(1, 1, 4).call)) << "no window";
  EXPECT_FALSE(*apply("F11", AttentionCall(1, 1, 4, 5).call)) << "nothing is cut off";
  EXPECT_TRUE(*apply("F12:mask=none", AttentionCall(1, 2, 3, 2).call));
}

TEST(F22, TilesKvHeads) {
  const AttentionCall one(1, 1, 0);  // one slot: the output is that kv head's value
  const auto out = apply("F22", one.call);
  ASSERT_TRUE(out && *out);
  for (std::int64_t h = 0; h < 4; ++h) EXPECT_EQ((*out)->at({0, h, 0, 0}), one.call.inputs[2].at({0, h % 2, 0, 0}));
}

TEST(F06, LeavesAHoleAndLosesTheNewestToken) {
  Facts f = facts();
  const Node node{.op = Op::cache_write, .output = "layers.0.k_cache", .inputs = {"layers.0.k_rope"}, .weight = "", .layer = 0};
  OpCall call;
  call.node = &node;
  call.context.facts = &f;
  call.inputs = {Tensor::from_values(DType::f32, {1, 1, 1, 2}, std::vector<double>{5, 6})};
  call.context.cache = Tensor::from_values(DType::f32, {1, 1, 2, 2}, std::vector<double>{1, 2, 3, 4});
  call.context.at = {{0}, {{2}}, {{0, 1, 2}}};
  call.result = Tensor::from_values(DType::f32, {1, 1, 3, 2}, std::vector<double>{1, 2, 3, 4, 5, 6});
  EXPECT_EQ((*apply("F06:content=zero", call))->values(), (std::vector<double>{1, 2, 3, 4, 0, 0}));
  EXPECT_EQ((*apply("F06:content=last", call))->values(), (std::vector<double>{1, 2, 3, 4, 3, 4}));
  call.context.at.slot = {{2}};
  EXPECT_FALSE(*apply("F06", call)) << "an empty cache";
}

// [rows, 1 head, slots, 1 channel] of a cache whose row r holds 10 r + slot; the last slot is new.
struct JoinedCache {
  Facts f = facts();
  Node node{.op = Op::cache_write, .output = "layers.0.k_cache", .inputs = {"layers.0.k_rope"}, .weight = "", .layer = 0};
  OpCall call;
  JoinedCache(std::int64_t rows, std::int64_t slots) {
    call.node = &node;
    call.result = held(rows, slots, 0);
    call.inputs = {call.result.sliced(2, slots - 1, slots).contiguous()};
    for (std::int64_t row = 0; row < rows; ++row) {
      call.context.at.position.push_back({slots - 1});
      auto& slot = call.context.at.slot.emplace_back();
      for (std::int64_t s = 0; s < slots; ++s) slot.push_back(s);
    }
  }
  static Tensor held(std::int64_t rows, std::int64_t slots, double first) {
    std::vector<double> values;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t slot = 0; slot < slots; ++slot) values.push_back(first + static_cast<double>(10 * row + slot));
    return Tensor::from_values(DType::f32, {rows, 1, slots, 1}, values);
  }
};

TEST(F19, ReadsTheRowsOfTheStepBeforeOnlyWhereRowsChanged) {
  JoinedCache cache(2, 3);
  cache.call.previous = JoinedCache::held(3, 2, 500);  // three rows then, of which one left
  EXPECT_FALSE(*apply("F19", cache.call));
  cache.call.rows_changed = true;
  const auto out = apply("F19", cache.call);
  ASSERT_TRUE(out && *out);
  EXPECT_EQ((*out)->values(), (std::vector<double>{500, 501, 2, 510, 511, 12})) << "new tokens are its own";
}

TEST(F19, AlignsAShorterCacheAtItsNewestToken) {
  JoinedCache cache(2, 4);
  cache.call.rows_changed = true;
  cache.call.previous = JoinedCache::held(1, 2, 500);
  const auto out = apply("F19", cache.call);
  ASSERT_TRUE(out && *out);
  EXPECT_EQ((*out)->values(), (std::vector<double>{0, 500, 501, 3, 10, 11, 12, 13}));
}

TEST(F23, IsNotARowThatLeft) {
  JoinedCache cache(1, 3);
  cache.call.previous = JoinedCache::held(2, 4, 500);
  EXPECT_FALSE(*apply("F23", cache.call)) << "nothing was taken back: a ring may show less than at the step before";
  cache.call.taken_back = 2;
  EXPECT_TRUE(*apply("F23", cache.call));
  cache.call.rows_changed = true;
  EXPECT_FALSE(*apply("F23", cache.call));
}

// A linear op [row, token, 64] -> [row, token, 3] on a packed weight in groups of 32, with no two scales or biases alike.
struct PackedCall {
  Facts f = facts();
  Node node{.op = Op::linear, .output = "layers.0.q", .inputs = {"layers.0.attn_norm"}, .weight = "w.layers.0.q", .layer = 0};
  OpCall call;
  PackedCall(std::int64_t rows, std::int64_t tokens, int bits = 4, DType dtype = DType::f32) {
    const std::int64_t out = 3, in = 64, group = 32;
    Weight weight;
    weight.bits = bits;
    weight.group = static_cast<int>(group);
    std::vector<double> words, scales, biases, x;
    for (std::int64_t i = 0; i < out * in * bits / 32; ++i) words.push_back(static_cast<double>((i + 1) * 2654435761 % 4294967296));
    for (std::int64_t i = 0; i < out * in / group; ++i) {
      scales.push_back(0.25 * static_cast<double>(i + 2));
      biases.push_back(-1.5 * static_cast<double>(i + 1));
    }
    for (std::int64_t i = 0; i < rows * tokens * in; ++i) x.push_back(static_cast<double>(i * 7 % 11) - 5);
    weight.packed = Tensor::from_values(DType::u32, {out, in * bits / 32}, words);
    weight.scales = Tensor::from_values(dtype, {out, in / group}, scales);
    weight.biases = Tensor::from_values(dtype, {out, in / group}, biases);
    call.node = &node;
    call.dtype = dtype;
    call.context.facts = &f;
    call.context.dtype = dtype;
    call.inputs = {Tensor::from_values(dtype, {rows, tokens, in}, x)};
    call = with_packed(std::move(call), std::move(weight));
    call.result = product_with(*call.packed);
  }
  Tensor product_with(const Weight& weight) const {
    auto context = call.context;
    context.weight = weight.to_f32();
    return to_tensor(*evaluate_node(node, {to_array(call.inputs[0])}, context), call.dtype);
  }
};

TEST(PackedFaults, SayNothingOfADenseWeight) {
  PackedCall two(2, 1);
  two.call.packed = nullptr;
  for (const char* fault : {"F03", "F17:scale=one", "F17:scale=neighbour", "F24:term=bias", "F24:term=codes"})
    EXPECT_FALSE(*apply(fault, two.call)) << fault;
}

TEST(F24, BreaksOnlyStepsOfOneTokenOnWeightsOfItsWidth) {
  const PackedCall one(2, 1);
  auto weight = *one.call.packed;
  weight.biases = Tensor::zeros(DType::f32, weight.biases.shape());
  EXPECT_EQ((*apply("F24:term=bias", one.call))->values(), one.product_with(weight).values());
  EXPECT_FALSE(*apply("F24:term=bias", PackedCall(2, 2).call)) << "several tokens";
  EXPECT_FALSE(*apply("F24:term=bias,bits=8", one.call));
  EXPECT_TRUE(*apply("F24:term=bias,bits=8", PackedCall(1, 1, 8).call));
  EXPECT_FALSE(*apply("F24:term=bias", PackedCall(1, 1, 8).call)) << "4 bits are its default";
}

TEST(F24, LeavesTheTailOutOrExchangesCodes) {
  PackedCall one(1, 1);
  auto values = one.call.inputs[0].values();
  std::fill(values.begin() + 32, values.end(), 0.0);  // of the last group
  const auto tail = (*apply("F24:term=tail", one.call))->values();
  PackedCall short_input(1, 1);
  short_input.call.inputs[0] = Tensor::from_values(DType::f32, {1, 1, 64}, values);
  EXPECT_EQ(tail, short_input.product_with(*one.call.packed).values());

  // Channels in the order 1, 0, 3, 2, .. meet the codes that are exchanged.
  auto exchanged = one.call.inputs[0].values();
  for (std::size_t i = 0; i < exchanged.size(); i += 2) std::swap(exchanged[i], exchanged[i + 1]);
  PackedCall other_order(1, 1);
  other_order.call.inputs[0] = Tensor::from_values(DType::f32, {1, 1, 64}, exchanged);
  EXPECT_EQ((*apply("F24:term=codes", one.call))->values(), other_order.product_with(*one.call.packed).values());
  EXPECT_FALSE(*apply("F24:term=codes,bits=8", PackedCall(1, 1, 8).call)) << "a byte holds one code";
}

TEST(F03, ShiftsTheScalesOfLaterRows) {
  const PackedCall three(3, 2);
  const auto shifted = [&](std::int64_t rows, double beyond_0, double beyond_1) {
    auto weight = *three.call.packed;
    auto scales = weight.scales.values();
    for (std::size_t i = 0; i < scales.size(); ++i) {
      const auto from = i + static_cast<std::size_t>(2 * rows);
      scales[i] = from < scales.size() ? weight.scales.values()[from] : (i % 2 == 0 ? beyond_0 : beyond_1);
    }
    weight.scales = Tensor::from_values(DType::f32, weight.scales.shape(), scales);
    return three.product_with(weight);
  };
  const auto row = [](const Tensor& x, std::int64_t index) { return x.sliced(0, index, index + 1).values(); };
  const auto zero = **apply("F03:beyond=zero", three.call);
  EXPECT_EQ(row(zero, 0), row(three.call.result, 0));
  EXPECT_EQ(row(zero, 1), row(shifted(1, 0, 0), 1));
  EXPECT_EQ(row(zero, 2), row(shifted(2, 0, 0), 2));
  const auto last = **apply("F03:beyond=last", three.call);
  EXPECT_EQ(row(last, 2), row(shifted(2, 1.5, 1.75), 2)) << "the last channel's two scales";
  EXPECT_NE((*apply("F03:beyond=first", three.call))->values(), last.values());
  EXPECT_NE((*apply("F03:planes=both", three.call))->values(), zero.values());
  EXPECT_FALSE(*apply("F03", PackedCall(1, 2).call)) << "one row";
}

TEST(F03, ExplainsEachRowByACallOfItsOwn) {
  const PackedCall two(2, 1);
  const auto broken = find_fault("F03")->breaks(*FaultSpec::parse("F03"), two.call);
  ASSERT_TRUE(broken && *broken);
  ASSERT_EQ((*broken)->altered_rows.size(), 2u);
  EXPECT_EQ((*broken)->altered_rows[0].packed, two.call.packed);
  EXPECT_NE((*broken)->altered_rows[1].packed, two.call.packed);
  EXPECT_EQ((*broken)->altered_rows[1].inputs[0].values(), two.call.inputs[0].sliced(0, 1, 2).values());
}

TEST(F17, ReadsOtherScales) {
  const auto scales = Tensor::from_values(DType::bf16, {2, 5}, std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  const auto of = [&](const char* how) { return misread_scales(scales, how).values(); };
  EXPECT_EQ(of("one"), std::vector<double>(10, 1.0));
  EXPECT_EQ(of("quarter"), (std::vector<double>{1, 1, 1, 1, 2, 6, 6, 6, 6, 7}));
  EXPECT_EQ(of("neighbour"), (std::vector<double>{2, 3, 4, 5, 6, 7, 8, 9, 10, 10}));
  // 1 is 3f80, 2 is 4000, 3 is 4040, 4 is 4080, 5 is 40a0.
  EXPECT_EQ(of("raw_byte"), (std::vector<double>{0x80, 0x3f, 0, 0x40, 0x40, 0x40, 0x80, 0x40, 0xa0, 0x40}));
}

TEST(F17, BreaksAnyStepOnAPackedWeight) {
  for (const std::int64_t tokens : {1, 2}) {
    const PackedCall call(2, tokens);
    for (const char* scale : {"one", "raw_byte", "quarter", "neighbour"}) {
      auto weight = *call.call.packed;
      weight.scales = misread_scales(weight.scales, scale);
      const auto out = apply((std::string("F17:scale=") + scale).c_str(), call.call);
      ASSERT_TRUE(out && *out) << scale;
      EXPECT_EQ((*out)->values(), call.product_with(weight).values());
    }
    EXPECT_FALSE(*apply("F17:scale=unquantised", call.call)) << "of caches";
  }
  PackedCall equal(1, 1);
  auto weight = *equal.call.packed;
  weight.scales = Tensor::from_values(DType::f32, weight.scales.shape(), std::vector<double>(6, 0.5));
  equal.call = with_packed(equal.call, weight);
  equal.call.result = equal.product_with(weight);
  EXPECT_FALSE(*apply("F17:scale=quarter", equal.call)) << "all scales are equal";
  EXPECT_FALSE(*apply("F17:scale=neighbour", equal.call));
}

TEST(F17, ReadsAQuantisedCacheWithOtherScalesOrLeavesKeysAsTheyAre) {
  Facts f = facts();
  Node node{.op = Op::cache_write, .output = "layers.0.k_cache", .inputs = {"layers.0.k_rope"}, .weight = "", .layer = 0};
  OpCall call;
  call.node = &node;
  call.context.facts = &f;
  call.context.dtype = DType::f32;
  call.context.cache_spec = *CacheSpec::parse("quantized:bits=4,group=32");
  std::vector<double> old(32, 7.0), written;
  for (int i = 0; i < 32; ++i) written.push_back(std::sin(i));
  call.inputs = {Tensor::from_values(DType::f32, {1, 1, 1, 32}, written)};
  call.context.cache = Tensor::from_values(DType::f32, {1, 1, 1, 32}, old);
  call.context.at = {{0}, {{1}}, {{0, 1}}};
  call.result = to_tensor(*evaluate_node(node, {to_array(call.inputs[0])}, call.context), DType::f32);
  const auto raw = apply("F17:scale=unquantised", call);
  ASSERT_TRUE(raw && *raw);
  const auto new_slot = [](const Tensor& x) { return x.sliced(2, 1, 2).values(); };
  EXPECT_EQ((*raw)->sliced(2, 0, 1).values(), old);
  EXPECT_EQ(new_slot(**raw), call.inputs[0].values());
  EXPECT_NE(new_slot(**raw), new_slot(call.result));
  const auto one = apply("F17:scale=one", call);
  ASSERT_TRUE(one && *one);
  EXPECT_NE(new_slot(**one), new_slot(call.result));
  EXPECT_FALSE(*apply("F17:scale=neighbour", call)) << "there is one group";

  node.output = "layers.0.v_cache";
  EXPECT_FALSE(*apply("F17:scale=unquantised", call)) << "keys only";
  EXPECT_TRUE(*apply("F17:scale=one", call));
  call.context.cache_spec = {};
  EXPECT_FALSE(*apply("F17:scale=one", call)) << "the cache is not quantised";
}

std::vector<double> row_of(const Tensor& x, std::int64_t row) { return x.sliced(0, row, row + 1).values(); }

TEST(LookAlikes, AMatvecWithoutScalesIsToldFromNoScalesByAStepOfTwoTokens) {
  const PackedCall one(2, 1), two(2, 2);
  EXPECT_EQ((*apply("F24:term=scale", one.call))->values(), (*apply("F17:scale=one", one.call))->values());
  EXPECT_FALSE(*apply("F24:term=scale", two.call));
  EXPECT_TRUE(*apply("F17:scale=one", two.call));
}

TEST(LookAlikes, ShiftedScalesAreToldFromTheNeighboursByRowZero) {
  // With one group in a row of the weight, the next group is the next row's.
  PackedCall two(2, 1);
  auto weight = *two.call.packed;
  weight.group = 64;
  weight.scales = Tensor::from_values(DType::f32, {3, 1}, std::vector<double>{0.5, 2, 8});
  weight.biases = Tensor::from_values(DType::f32, {3, 1}, std::vector<double>{-1, -2, -3});
  two.call = with_packed(two.call, weight);
  two.call.result = two.product_with(weight);
  const auto shifted = **apply("F03:beyond=last", two.call), neighbour = **apply("F17:scale=neighbour", two.call);
  EXPECT_EQ(row_of(shifted, 1), row_of(neighbour, 1));
  EXPECT_EQ(row_of(shifted, 0), row_of(two.call.result, 0));
  EXPECT_NE(row_of(neighbour, 0), row_of(two.call.result, 0));
  EXPECT_FALSE(*apply("F17:scale=quarter", two.call)) << "one group in a row";
}

TEST(LookAlikes, MisreadScalesDiffer) {
  const PackedCall call(1, 1);
  std::vector<std::vector<double>> outputs;
  for (const char* scale : {"one", "raw_byte", "quarter", "neighbour"})
    outputs.push_back((*apply((std::string("F17:scale=") + scale).c_str(), call.call))->values());
  std::ranges::sort(outputs);
  EXPECT_EQ(std::ranges::adjacent_find(outputs), outputs.end());
}

TEST(LookAlikes, RowsAboveZeroAreWrongByAnotherOpInEachFault) {
  const PackedCall packed(3, 1);
  EXPECT_TRUE(*apply("F03", packed.call));
  for (const char* other : {"F01:content=zero", "F04:tokens=any"}) EXPECT_FALSE(*apply(other, packed.call)) << other;
  EXPECT_FALSE(*apply("F03", RopeCall(3, 1, 5, 2).call));
  EXPECT_FALSE(*apply("F03", AttentionCall(3, 1, 3).call));
}

TEST(Catalogue, EachValueHasAMeaningAndEachLookAlikeIsNamedOnBothSides) {
  for (const auto& entry : fault_catalogue()) {
    std::vector<std::string> values;
    for (const auto& [name, allowed] : entry.parameters)
      for (const auto& value : allowed) values.push_back(name + "=" + value);
    std::vector<std::string> explained;
    for (const auto& [value, meaning] : entry.meanings) {
      explained.emplace_back(value);
      EXPECT_FALSE(meaning.empty()) << entry.id << " " << value;
    }
    EXPECT_EQ(explained, values) << entry.id;
    EXPECT_FALSE(entry.look_alikes.empty()) << entry.id;
    for (const auto& [id, measurement] : entry.look_alikes) {
      EXPECT_NE(id, entry.id);
      EXPECT_FALSE(measurement.empty()) << entry.id << " " << id;
      const auto* other = find_fault(id);
      if (other == nullptr) continue;  // of an entry that is not there yet
      EXPECT_TRUE(std::ranges::any_of(other->look_alikes, [&](const auto& pair) { return pair.first == entry.id; }))
          << id << " does not name " << entry.id;
    }
  }
}

}  // namespace
}  // namespace culprit
