#include "decode/architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace culprit {
namespace {
constexpr const Architecture* kArchitectures[] = {&kLlama};
}  // namespace

std::span<const Architecture* const> architectures() { return kArchitectures; }

const Architecture* find_architecture(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures), [&](const auto* entry) { return entry->name == name; });
  return found == std::end(kArchitectures) ? nullptr : *found;
}

Result<void> check_facts(const Facts& facts) {
  const auto unsupported = [](std::string message) { return fail("model-unsupported", std::move(message)); };
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
                                                {"vocabulary", facts.vocabulary},
                                                {"rope.dims", facts.rope.dims}};
  for (const auto& [name, count] : counts)
    if (count <= 0) return unsupported(fmt::format("expected a positive {}, got {}", name, count));
  if (facts.heads % facts.kv_heads != 0)
    return unsupported(fmt::format("{} heads cannot share {} kv heads evenly", facts.heads, facts.kv_heads));
  if (facts.rope.dims % 2 != 0 || facts.rope.dims > facts.head_channels)
    return unsupported(fmt::format("expected even rope.dims up to {}, got {}", facts.head_channels, facts.rope.dims));
  if (!(facts.norm_epsilon >= 0) || !std::isfinite(facts.norm_epsilon))
    return unsupported(fmt::format("expected norm_epsilon >= 0, got {}", facts.norm_epsilon));
  if (!(facts.rope.base > 1) || !std::isfinite(facts.rope.base))
    return unsupported(fmt::format("expected rope.base > 1, got {}", facts.rope.base));
  if (!(facts.rope.factor > 0) || !std::isfinite(facts.rope.factor))
    return unsupported(fmt::format("expected rope.factor > 0, got {}", facts.rope.factor));
  if (facts.rope.scaling == RopeScaling::llama3 &&
      !(facts.rope.low_frequency_factor > 0 && facts.rope.high_frequency_factor > facts.rope.low_frequency_factor &&
        facts.rope.original_context > 0))
    return unsupported(fmt::format("expected 0 < low_frequency_factor < high_frequency_factor and original_context > 0, got {}, {}, {}",
                                   facts.rope.low_frequency_factor, facts.rope.high_frequency_factor, facts.rope.original_context));
  return {};
}

}  // namespace culprit
