#include "audit/quantized_cache.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "audit/bounds.h"
#include "decode/affine_groups.h"

namespace culprit {
namespace {

/// The affine forms that a group may have.
struct Forms {
  double edge = 0;
  double scale_least = 0, scale_most = 0;
  double bias = 0;       // the edge, or 0 where all values are nearer to 0 than half the least step
  bool one_edge = true;  // no other value can be the bias
  bool has_form = false;

  /// Whether scale and bias are known but for roundings.
  [[nodiscard]] bool has_levels() const { return one_edge && bias == edge && scale_least == scale_most; }
};

Forms forms_of(std::span<const double> values, double levels, double inner_unit, double inner_most) {
  Forms forms;
  for (const double value : values)
    if (!std::isfinite(value)) return forms;
  const auto [smallest, largest] = std::ranges::minmax(values);
  const double range = largest - smallest;
  if (!(range <= inner_most)) return forms;
  forms.has_form = true;
  forms.edge = std::abs(smallest) > std::abs(largest) ? smallest : largest;
  forms.one_edge = std::abs(smallest) != std::abs(largest) || range == 0;
  const double size = std::abs(forms.edge);
  const double step = std::max(range / levels, kAffineStepLeast);
  const double quotient = size / step, slack = quotient * gamma(3, inner_unit);
  const double k_least = std::max(0.0, std::ceil(quotient - slack - 0.5)), k_most = std::floor(quotient + slack + 0.5);
  const double step_most = step * (1 + gamma(3, inner_unit));
  forms.scale_most = k_least == 0 ? step_most : size / k_least;
  forms.scale_least = k_most == 0 ? step : size / k_most;
  forms.bias = k_most == 0 ? 0 : forms.edge;
  if (k_least == 0 && k_most > 0) {  // the bias may be 0 as well: then the edge is off too, by all of it
    forms.scale_most = std::max(forms.scale_most, 2 * size);
    forms.one_edge = false;
  }
  return forms;
}

struct Level {
  double value = 0;
  double rounding = 0;  // how far from it the engine's arithmetic may read it
};

/// The level that is nearest to `seen`; nothing where roundings could lead from a place between two levels to either.
std::optional<Level> nearest_level(const Forms& forms, double levels, double seen, double u, double eta, double inner) {
  const double scale = forms.scale_most, away = std::copysign(1.0, -forms.edge);
  if (!std::isfinite(seen) || !(scale > 0)) return std::nullopt;
  const double q = std::clamp(std::nearbyint((seen - forms.edge) * away / scale), 0.0, levels);
  Level level{forms.edge + away * scale * q, 0};
  const double scale_off = compounded(1, u, inner) * scale + eta;
  const double before_sum = q * scale_off + u * q * (scale + scale_off) + eta;
  level.rounding = before_sum + u * (std::abs(level.value) + before_sum) + eta;
  if (!(2 * level.rounding < scale)) return std::nullopt;
  return level;
}

}  // namespace

Bounded quantized_cache_bounds(const CacheHistory::Expected& written, const CacheSpec& spec, DType dtype, const Tensor* actual) {
  const auto of_dtype = rounding_of(dtype), of_f32 = rounding_of(DType::f32);
  const double u = of_dtype.unit, eta = of_dtype.half_subnormal;
  const double inner = std::min(u, of_f32.unit), inner_most = std::max(of_dtype.largest, of_f32.largest);
  const double levels = std::exp2(static_cast<double>(spec.bits)) - 1;
  const double threshold = overflow_threshold(dtype);
  const auto channels = static_cast<std::size_t>(written.values.shape().back()), group = static_cast<std::size_t>(spec.group);

  Bounded bounded;
  bounded.value = to_array(written.values);
  auto& values = bounded.value.values;
  bounded.bound.assign(values.size(), 0.0);
  bounded.untested.assign(values.size(), false);
  const auto seen = actual == nullptr ? std::vector<double>() : actual->values();
  for (std::size_t begin = 0; begin < values.size(); begin += group) {
    const auto forms = forms_of(std::span(values).subspan(begin, group), levels, inner, inner_most);
    const bool tested = forms.has_form && written.known[begin / channels];
    for (std::size_t i = begin; i < begin + group; ++i) {
      bounded.untested[i] = !tested;
      if (!tested) continue;
      const double distance = std::abs(values[i] - forms.bias);
      if (distance == 0 && forms.one_edge) continue;  // q = 0
      const double q = std::min(levels, distance / forms.scale_least + 1);
      const double level =
          std::max(forms.scale_most / 2, distance - levels * forms.scale_least) + forms.scale_most * (levels + 1) * gamma(3, inner);
      const double scale_off = compounded(1, u, inner) * forms.scale_most + eta;
      const double product = q * (forms.scale_most + scale_off);
      const double before_sum = level + q * scale_off + u * product + eta;
      bounded.bound[i] = before_sum + u * (std::abs(values[i]) + before_sum) + eta;
      if (product * (1 + u) < threshold) {
        if (seen.empty() || !forms.has_levels()) continue;
        const auto level_near = nearest_level(forms, levels, seen[i], u, eta, inner);
        if (level_near && std::abs(level_near->value - values[i]) <= bounded.bound[i]) {
          values[i] = level_near->value;
          bounded.bound[i] = level_near->rounding;
        }
        continue;
      }
      bounded.bound[i] = std::numeric_limits<double>::infinity();
      values[i] = std::copysign(values[i], -forms.edge);  // the sign of the product, and of its overflow
    }
  }
  return bounded;
}

}  // namespace culprit
