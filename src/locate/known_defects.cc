#include "locate/known_defects.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace culprit {

std::span<const KnownDefect> known_defects() {
  static constexpr KnownDefect kDefects[] = {
      {"mlx 2791", "mlx", "rope", "F09:table=dtype", "bf16 f16", "", "0.29.4", "0.30.0", "",
       "RoPE computes positions and frequencies in the input's dtype"},
      {"mlx 3664", "mlx", "load", "F17:q4_1_nibbles=2", "", "", "0.31.2", "0.32.0", "",
       "the GGUF loader reads the nibbles of Q4_1 blocks two bytes early"},
      {"mlx 3494", "mlx", "rope", "F01", "", "0.29.2", "0.31.2", "0.32.0", "Metal",
       "single-token RoPE rotates only index 0 of dimension 0"},
      {"mlx 2835", "mlx", "sdpa", "F12:mask=top_left", "", "", "0.30.4", "0.30.5", "",
       "\"causal\" is aligned top-left when there are more queries than keys"},
  };
  return kDefects;
}

int compare_versions(std::string_view a, std::string_view b) {
  const auto next = [](std::string_view& text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    text.remove_prefix(error == std::errc() ? static_cast<std::size_t>(end - text.data()) : text.size());
    if (!text.empty()) text.remove_prefix(1);
    return value;
  };
  while (!a.empty() || !b.empty()) {
    const int x = next(a), y = next(b);
    if (x != y) return x < y ? -1 : 1;
  }
  return 0;
}

std::string KnownMatch::text() const {
  const auto range = defect->first.empty() ? fmt::format("releases up to {}", defect->last)
                                           : fmt::format("releases {} to {}", defect->first, defect->last);
  const auto on = defect->backend.empty() ? std::string() : fmt::format(" on {}", defect->backend);
  if (release_fits) return fmt::format("{}: {}; {}{}, fixed in {}", defect->reference, defect->summary, range, on, defect->fixed_in);
  return fmt::format("same op and mechanism as {} ({}{}, fixed in {}), but this release and backend are not among those affected",
                     defect->reference, range, on, defect->fixed_in);
}

std::vector<KnownMatch> match_known(std::string_view engine_spec, std::string_view op, std::string_view fault, DType dtype) {
  const auto at = engine_spec.find('@');
  const auto engine = engine_spec.substr(0, at);
  const auto version = at == std::string_view::npos ? std::string_view{} : engine_spec.substr(at + 1);
  std::vector<KnownMatch> matches;
  for (const auto& defect : known_defects()) {
    if (defect.op != op || !fault.starts_with(defect.fault)) continue;
    if (!defect.dtypes.empty() && defect.dtypes.find(name_of(dtype)) == std::string_view::npos) continue;
    // The registered packages are CPU builds: a defect of another backend cannot be this release's own.
    const bool fits = defect.engine == engine && defect.backend.empty() && !version.empty() &&
                      compare_versions(version, defect.last) <= 0 && (defect.first.empty() || compare_versions(version, defect.first) >= 0);
    matches.push_back({&defect, fits});
  }
  std::ranges::stable_sort(matches, [](const KnownMatch& x, const KnownMatch& y) { return x.release_fits && !y.release_fits; });
  return matches;
}

}  // namespace culprit
