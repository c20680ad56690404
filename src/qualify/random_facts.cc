#include "qualify/random_facts.h"

#include <algorithm>

namespace culprit {
namespace {

constexpr int kGroupedChannels = 32;  // the smallest group of a quantised cache

/// `part` of `whole` as it was of `whole_before`, even and at least 2.
int even_share(int part, int whole, int whole_before) { return std::max(2, part * whole / whole_before / 2 * 2); }

void draw_rope(RopeFacts& rope, Dice& dice) {
  if (dice.chance(25)) rope.pairing = RopePairing::interleaved;
  rope.base = dice.pick({1e4, 5e5, 1e6});
  if (rope.scaling != RopeScaling::none || !dice.chance(25)) return;
  rope.factor = dice.pick({2.0, 4.0, 8.0});
  rope.scaling = dice.pick({RopeScaling::linear, RopeScaling::llama3});
  rope.original_context = dice.pick({64.0, 512.0, 8192.0});
}

void draw_attention(Facts& facts, const Facts& tiny, Dice& dice, bool wide_heads) {
  facts.kv_heads = dice.between(1, 3);
  facts.heads = facts.kv_heads * dice.between(1, 3);
  const auto channels = [&] { return wide_heads ? kGroupedChannels : 2 * dice.between(2, 10); };
  facts.head_channels = channels();
  if (tiny.full_head_channels > 0) facts.full_head_channels = channels();
  if (tiny.full_kv_heads > 0) facts.full_kv_heads = facts.kv_heads;
  // facts.rope is that of full layers where these have heads of their own.
  const int rotated = facts.full_head_channels > 0 ? facts.full_head_channels : facts.head_channels;
  const int rotated_before = tiny.full_head_channels > 0 ? tiny.full_head_channels : tiny.head_channels;
  facts.rope.dims = even_share(tiny.rope.dims, rotated, rotated_before);
  if (tiny.rope.rotated > 0) facts.rope.rotated = even_share(tiny.rope.rotated, facts.rope.dims, tiny.rope.dims);
  draw_rope(facts.rope, dice);
  if (facts.rope_local) {
    facts.rope_local->dims = even_share(tiny.rope_local->dims, facts.head_channels, tiny.head_channels);
    facts.rope_local->pairing = facts.rope.pairing;
  }
  if (tiny.window > 0) facts.window = dice.between(2, 5);
}

void draw_experts(ExpertFacts& experts, int layers, Dice& dice) {
  experts.count = dice.between(3, 8);
  experts.used = dice.between(1, std::min(experts.count, 4));
  experts.hidden = dice.between(5, 24);
  if (experts.shared_hidden > 0) experts.shared_hidden = dice.between(5, 24);
  std::erase_if(experts.dense_layers, [&](int layer) { return layer >= layers; });
}

void draw_delta(DeltaFacts& delta, Dice& dice) {
  delta.key_heads = dice.between(1, 2);
  delta.value_heads = delta.key_heads * dice.between(1, 3);
  delta.key_channels = dice.between(3, 9);
  delta.value_channels = dice.between(3, 12);
  delta.kernel = dice.between(2, 4);
}

Facts draw(const Facts& tiny, Dice& dice, bool wide_heads) {
  auto facts = tiny;
  facts.layers = dice.between(std::max(1, tiny.layers - 2), tiny.layers + 1);
  facts.hidden = 2 * dice.between(10, 32);
  facts.mlp_hidden = dice.between(17, 80);
  facts.vocabulary = dice.between(41, 120);
  draw_attention(facts, tiny, dice, wide_heads);
  if (facts.per_layer_channels > 0) facts.per_layer_channels = dice.between(3, 12);
  if (facts.experts) draw_experts(*facts.experts, facts.layers, dice);
  if (facts.delta) draw_delta(*facts.delta, dice);
  return facts;
}

}  // namespace

Facts random_facts(const Architecture& architecture, Dice& dice, bool wide_heads) {
  constexpr int kDraws = 50;  // counts that do not fit each other are few
  const auto tiny = architecture.tiny();
  for (int i = 0; i < kDraws; ++i)
    if (auto facts = draw(tiny, dice, wide_heads); check_facts(facts)) return facts;
  return tiny;
}

}  // namespace culprit
