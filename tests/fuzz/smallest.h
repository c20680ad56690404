#pragma once
// Models as small as their architecture allows, so that inputs stay short.
#include <algorithm>

#include "decode/architecture.h"

namespace culprit::fuzz {

/// The facts of the architecture's model for tests, with as few and narrow layers as still have each of its kinds.
inline Facts smallest_facts(const Architecture& architecture) {
  auto facts = architecture.tiny();
  const int period = std::max(facts.full_every, facts.delta ? facts.delta->attention_every : 0);
  facts.layers = std::max(period, facts.experts && !facts.experts->dense_layers.empty() ? 2 : 1);
  if (facts.kv_shared_layers > 0) facts.layers *= 2;
  facts.kv_shared_layers = std::min(facts.kv_shared_layers, 2);
  facts.hidden = facts.mlp_hidden = 4;
  facts.heads = 2;
  facts.kv_heads = 1;
  facts.head_channels = 4;
  facts.vocabulary = 5;
  facts.full_head_channels = std::min(facts.full_head_channels, 4);
  facts.full_kv_heads = std::min(facts.full_kv_heads, 1);
  facts.per_layer_channels = std::min(facts.per_layer_channels, 2);
  facts.rope.dims = std::min(facts.rope.dims, 4);
  facts.rope.rotated = std::min(facts.rope.rotated, 2);
  if (facts.rope_local) facts.rope_local->dims = std::min(facts.rope_local->dims, 4);
  if (facts.experts) {
    facts.experts->count = 3;
    facts.experts->used = 2;
    facts.experts->hidden = 2;
    facts.experts->shared_hidden = std::min(facts.experts->shared_hidden, 2);
  }
  if (facts.delta) {
    facts.delta->key_heads = 1;
    facts.delta->value_heads = 2;
    facts.delta->key_channels = facts.delta->value_channels = 2;
    facts.delta->kernel = 2;
  }
  return facts;
}

}  // namespace culprit::fuzz
