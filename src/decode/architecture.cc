#include "decode/architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace culprit {
namespace {
constexpr const Architecture* kArchitectures[] = {&kLlama, &kMistral, &kQwen2, &kQwen3, &kGemma3, &kQwen3Moe, &kQwen35, &kQwen35Moe};

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
  CULPRIT_CHECK(check_rope("rope", facts.rope, facts.head_channels));
  if (facts.rope_local) {
    if (facts.window == 0) return unsupported("rope_local has no meaning without a window");
    CULPRIT_CHECK(check_rope("rope_local", *facts.rope_local, facts.head_channels));
  }
  if (facts.experts) CULPRIT_CHECK(check_experts(*facts.experts));
  if (facts.delta) CULPRIT_CHECK(check_delta(*facts.delta));
  return {};
}

}  // namespace culprit
