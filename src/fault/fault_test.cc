#include "fault/fault.h"

#include <gtest/gtest.h>

#include <cmath>

#include "decode/model.h"

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

}  // namespace
}  // namespace culprit
