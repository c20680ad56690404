#include "decode/architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace culprit {
namespace {
constexpr const Architecture* kArchitectures[] = {&kLlama,  &kMistral,  &kQwen2,  &kQwen3,    &kGemma3,
                                                  &kGemma4, &kQwen3Moe, &kQwen35, &kQwen35Moe};

tl::unexpected<Error> unsupported(std::string message) { return fail("model-unsupported", std::move(message)); }

Result<void> check_rope(std::string_view name, const RopeFacts& rope, int head_channels) {
  if (rope.dims <= 0 || rope.dims % 2 != 0 || rope.dims > head_channels)
    return unsupported(fmt::format("expected even {}.dims up to {}, got {}", name, head_channels, rope.dims));
  if (!(rope.base > 1) || !std::isfinite(rope.base)) return unsupported(fmt::format("expected {}.base > 1, got {}", name, rope.base));
  if (!(rope.factor > 0) || !std::isfinite(rope.factor))
    return unsupported(fmt::format("expected {}.factor > 0, got {}", name, rope.factor));
  if (rope.scaling == RopeScaling::llama3 &&
      !(rope.low_frequency_factor > 0 && rope.high_frequency_factor > rope.low_frequency_factor && rope.original_context > 0))
    return unsupported(fmt::format("expected 0 < low_frequency_factor < high_frequency_factor and original_context > 0, got {}, {}, {}",
                                   rope.low_frequency_factor, rope.high_frequency_factor, rope.original_context));
  if (rope.scaling == RopeScaling::proportional && (rope.rotated < 0 || rope.rotated % 2 != 0 || rope.rotated > rope.dims))
    return unsupported(fmt::format("expected even {}.rotated up to {}, got {}", name, rope.dims, rope.rotated));
  return {};
}

Result<void> check_experts(const ExpertFacts& experts) {
  for (const auto& [name, count] :
       {std::pair{"count", experts.count}, {"used", experts.used}, {"hidden", experts.hidden}, {"every", experts.every}})
    if (count <= 0) return unsupported(fmt::format("expected a positive experts.{}, got {}", name, count));
  if (experts.used > experts.count)
    return unsupported(fmt::format("expected a token to use at most the {} experts, got {}", experts.count, experts.used));
  if (experts.shared_hidden < 0) return unsupported(fmt::format("expected experts.shared_hidden >= 0, got {}", experts.shared_hidden));
  return {};
}

Result<void> check_delta(const DeltaFacts& delta) {
  for (const auto& [name, count] : {std::pair{"key_heads", delta.key_heads},
                                    {"value_heads", delta.value_heads},
                                    {"key_channels", delta.key_channels},
                                    {"value_channels", delta.value_channels},
                                    {"kernel", delta.kernel}})
    if (count <= 0) return unsupported(fmt::format("expected a positive delta.{}, got {}", name, count));
  if (delta.value_heads % delta.key_heads != 0)
    return unsupported(fmt::format("{} value heads cannot share {} key heads evenly", delta.value_heads, delta.key_heads));
  if (delta.attention_every < 0) return unsupported(fmt::format("expected delta.attention_every >= 0, got {}", delta.attention_every));
  return {};
}

/// Layers of two kinds, layers that share, and the input of each layer.
Result<void> check_layers(const Facts& facts) {
  for (const auto& [name, count] : {std::pair{"full_head_channels", facts.full_head_channels},
                                    {"full_kv_heads", facts.full_kv_heads},
                                    {"kv_shared_layers", facts.kv_shared_layers},
                                    {"per_layer_channels", facts.per_layer_channels}})
    if (count < 0) return unsupported(fmt::format("expected {} >= 0, got {}", name, count));
  if (facts.full_kv_heads > 0 && facts.heads % facts.full_kv_heads != 0)
    return unsupported(fmt::format("{} heads cannot share {} kv heads evenly", facts.heads, facts.full_kv_heads));
  if (facts.full_head_channels > 0 && !(facts.query_pre_attn_scalar > 0))
    return unsupported("heads of two widths need a query_pre_attn_scalar of their own");
  // In closed form, since no file has bounded the number of layers yet.
  const auto full = [&](int layers) { return facts.window == 0 ? layers : facts.full_every == 0 ? 0 : layers / facts.full_every; };
  const int own = std::max(0, facts.layers - facts.kv_shared_layers);
  const bool full_lack = full(own) == 0 && full(facts.layers) > 0;
  const bool sliding_lack = own - full(own) == 0 && facts.layers - full(facts.layers) > 0;
  if (facts.kv_shared_layers > 0 && (full_lack || sliding_lack))
    return unsupported(fmt::format("the last {} of {} layers share keys and values, but no {} layer comes before them",
                                   facts.kv_shared_layers, facts.layers, full_lack ? "full" : "sliding"));
  // Sizes that follow from these must be counts as well.
  const std::int64_t limit = std::numeric_limits<int>::max();
  if (std::int64_t{facts.layers} * facts.per_layer_channels > limit ||
      (facts.kv_shared_double_mlp && 2 * std::int64_t{facts.mlp_hidden} > limit))
    return unsupported(fmt::format("layers {}, per_layer_channels {}, mlp_hidden {} are too large", facts.layers, facts.per_layer_channels,
                                   facts.mlp_hidden));
  return {};
}

/// The narrowest heads that facts.rope turns: those of full layers, and of sliding ones without a rope_local.
int rotated_head_channels(const Facts& facts) {
  if (facts.full_head_channels == 0) return facts.head_channels;
  return facts.window == 0 || facts.rope_local ? facts.full_head_channels : std::min(facts.head_channels, facts.full_head_channels);
}
/// The nodes that the facts ask for are those whose weights the architecture lists.
Result<void> check_has_weights(const Facts& facts) {
  const auto& weights = find_architecture(facts.architecture)->weights;
  const auto has = [&](std::string_view role) { return std::ranges::find(weights, role, &WeightEntry::role) != weights.end(); };
  const auto refused = [&](std::string_view what) { return unsupported(fmt::format("{} has no {}", facts.architecture, what)); };
  if (facts.experts && !has("router")) return refused("experts");
  if (facts.experts && facts.experts->shared_hidden > 0 && !has("shared_gate")) return refused("shared expert");
  if (facts.delta && !has("delta_qkv")) return refused("gated delta rule");
  if (facts.per_layer_channels > 0 && !has("per_layer_embed")) return refused("per-layer input");
  const bool all_experts = facts.experts && facts.experts->every == 1 && facts.experts->dense_layers.empty();
  if (!all_experts && !has("mlp_gate")) return refused("layers without experts");
  return {};
}
}  // namespace

std::span<const Architecture* const> architectures() { return kArchitectures; }

const Architecture* find_architecture(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures), [&](const auto* entry) { return entry->name == name; });
  return found == std::end(kArchitectures) ? nullptr : *found;
}

const Architecture* find_hf_architecture(std::string_view model_type) {
  const auto* found =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures), [&](const auto* entry) { return entry->hf_type == model_type; });
  return found == std::end(kArchitectures) ? nullptr : *found;
}

const Architecture* find_hf_wrapped(std::string_view model_type) {
  const auto* found = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                   [&](const auto* entry) { return !entry->hf_wrapper.empty() && entry->hf_wrapper == model_type; });
  return found == std::end(kArchitectures) ? nullptr : *found;
}

Result<void> check_facts(const Facts& facts) {
  if (find_architecture(facts.architecture) == nullptr) {
    std::string known;
    for (const auto* entry : kArchitectures) known += (known.empty() ? "" : ", ") + std::string(entry->name);
    return unsupported(fmt::format("expected an architecture of {}, got {}", known, facts.architecture));
  }
  const std::pair<const char*, int> counts[] = {{"layers", facts.layers},
                                                {"hidden", facts.hidden},
                                                {"heads", facts.heads},
                                                {"kv_heads", facts.kv_heads},
                                                {"head_channels", facts.head_channels},
                                                {"mlp_hidden", facts.mlp_hidden},
                                                {"vocabulary", facts.vocabulary}};
  for (const auto& [name, count] : counts)
    if (count <= 0) return unsupported(fmt::format("expected a positive {}, got {}", name, count));
  if (facts.heads % facts.kv_heads != 0)
    return unsupported(fmt::format("{} heads cannot share {} kv heads evenly", facts.heads, facts.kv_heads));
  if (!(facts.norm_epsilon >= 0) || !std::isfinite(facts.norm_epsilon))
    return unsupported(fmt::format("expected norm_epsilon >= 0, got {}", facts.norm_epsilon));
  for (const auto& [name, value] :
       {std::pair{"query_pre_attn_scalar", facts.query_pre_attn_scalar}, {"logit_softcap", facts.logit_softcap}})
    if (!(value >= 0) || !std::isfinite(value)) return unsupported(fmt::format("expected {} >= 0, got {}", name, value));
  if (facts.window < 0 || facts.full_every < 0)
    return unsupported(fmt::format("expected window and full_every >= 0, got {} and {}", facts.window, facts.full_every));
  if (facts.full_every > 0 && facts.window == 0) return unsupported("full_every has no meaning without a window");
  CULPRIT_CHECK(check_layers(facts));
  CULPRIT_CHECK(check_rope("rope", facts.rope, rotated_head_channels(facts)));
  if (facts.rope_local) {
    if (facts.window == 0) return unsupported("rope_local has no meaning without a window");
    CULPRIT_CHECK(check_rope("rope_local", *facts.rope_local, facts.head_channels));
  }
  if (facts.experts) CULPRIT_CHECK(check_experts(*facts.experts));
  if (facts.delta) CULPRIT_CHECK(check_delta(*facts.delta));
  CULPRIT_CHECK(check_has_weights(facts));
  return {};
}

}  // namespace culprit
