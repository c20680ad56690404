#include "audit/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "audit/bounds.h"

namespace culprit {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double ratio_of(double error, double bound) {
  if (!(error <= bound)) return bound > 0 && std::isfinite(error) ? error / bound : kInfinity;
  return bound > 0 ? (std::isinf(bound) ? 0 : error / bound) : 0;
}

// |actual - expected| with the rules for what is not finite: 0 when legal, NaN when not.
double error_of(double expected, double actual, double bound, double threshold) {
  const double never = std::numeric_limits<double>::quiet_NaN();
  if (std::isnan(expected)) return std::isnan(actual) ? 0 : never;
  if (std::isinf(actual)) return std::signbit(actual) == std::signbit(expected) && std::abs(expected) + bound >= threshold ? 0 : never;
  if (std::isinf(expected)) return never;
  return std::abs(actual - expected);
}

// Walks the [channel] vectors of a tensor and keeps their cells.
struct Vectors {
  std::int64_t heads, tokens, channels, count;

  explicit Vectors(const Shape& shape)
      : heads(shape.size() == 4 ? shape[1] : 1),
        tokens(shape[shape.size() - 2]),
        channels(shape.back()),
        count(shape[0] * heads * tokens),
        has_heads_(shape.size() == 4) {}

  [[nodiscard]] Cell cell(std::int64_t vector) const {
    Cell cell;
    cell.token = static_cast<int>(vector % tokens);
    cell.head = has_heads_ ? static_cast<int>(vector / tokens % heads) : -1;
    cell.row = static_cast<int>(vector / tokens / heads);
    return cell;
  }
  [[nodiscard]] std::vector<std::int64_t> index(const Cell& cell, std::int64_t channel) const {
    if (has_heads_) return {cell.row, cell.head, cell.token, channel};
    return {cell.row, cell.token, channel};
  }

 private:
  bool has_heads_;
};

double root_mean_square(const double* values, std::int64_t count) {
  double largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    if (std::isfinite(values[i])) largest = std::max(largest, std::abs(values[i]));
  if (largest == 0) return 0;
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i)
    if (std::isfinite(values[i])) sum += (values[i] / largest) * (values[i] / largest);
  return largest * std::sqrt(sum / static_cast<double>(count));
}

}  // namespace

std::string_view name_of(Judgement judgement) {
  switch (judgement) {
    case Judgement::within:
      return "within";
    case Judgement::precision:
      return "precision";
    case Judgement::corruption:
      return "corruption";
    case Judgement::vacuous:
      return "vacuous";
    case Judgement::not_tested:
      return "not_tested";
  }
  return "";
}

void conclude(OpAudit& audit) {
  if (audit.over > 0)
    audit.judgement = Judgement::corruption;
  else if (audit.count == 0)
    audit.judgement = Judgement::not_tested;
  else if (audit.precision > 0)
    audit.judgement = Judgement::precision;
  else
    audit.judgement = audit.vacuous == audit.count ? Judgement::vacuous : Judgement::within;
}

void judge(const Bounded& expected, const Tensor& actual, OpAudit& audit) {
  const auto dtype = actual.dtype();
  const double threshold = overflow_threshold(dtype);
  const double unit = rounding_of(dtype).unit;
  const double smallest_normal = rounding_of(dtype).half_subnormal / unit;
  const auto values = actual.values();
  const Vectors vectors(actual.shape());
  audit.dtype = dtype;
  bool vanished = false, rounded = false;
  double worst = -1;
  for (std::int64_t vector = 0; vector < vectors.count; ++vector) {
    auto cell = vectors.cell(vector);
    const auto start = static_cast<std::size_t>(vector * vectors.channels);
    const double scale = root_mean_square(&expected.value.values[start], vectors.channels);
    for (std::int64_t channel = 0; channel < vectors.channels; ++channel) {
      const auto place = start + static_cast<std::size_t>(channel);
      if (!expected.untested.empty() && expected.untested[place]) continue;
      const double right = expected.value.values[place], bound = expected.bound[place];
      const double error = error_of(right, values[place], bound, threshold);
      const bool within = error <= bound || (error == 0 && std::isnan(right));
      const double ratio = within && std::isnan(right) ? 0 : ratio_of(error, bound);
      cell.count += 1;
      const bool may_vanish = !within && !expected.may_vanish.empty() && expected.may_vanish[place] && values[place] == 0;
      if (may_vanish) {
        vanished = true;
        audit.precision += 1;
        audit.standard_ratio_max = std::max(audit.standard_ratio_max, ratio);
        continue;
      }
      const bool says_nothing = within && bound > 0 && !std::isnan(right) && !(bound < std::abs(right)) && !(bound < scale) &&
                                !(scale == 0 && bound < smallest_normal);  // a vector that must be 0 is held to that
      const double standard = expected.standard.empty() ? bound : expected.standard[place];
      const double standard_ratio = std::isnan(right) ? ratio : ratio_of(error, standard);
      if (within && standard_ratio > 1) {
        rounded = true;
        audit.precision += 1;
      }
      audit.over += within ? 0 : 1;
      cell.over += within ? 0 : 1;
      audit.vacuous += says_nothing ? 1 : 0;
      audit.standard_ratio_max = std::max(audit.standard_ratio_max, standard_ratio);
      if (says_nothing) continue;
      cell.ratio = std::max(cell.ratio, ratio);
      audit.ratio_max = std::max(audit.ratio_max, ratio);
      if (unit * std::abs(right) >= bound / 4 && bound > 0) {
        audit.rounding_seen = true;
        audit.rounding_ratio_max = std::max(audit.rounding_ratio_max, ratio);
      }
      if (std::isfinite(error)) audit.error_max = std::max(audit.error_max, error);
      if (ratio > worst) {
        worst = ratio;
        audit.expected = right;
        audit.actual = values[place];
        audit.bound = bound;
        audit.worst = vectors.index(cell, channel);
      }
    }
    audit.count += cell.count;
    if (cell.count > 0) audit.cells.push_back(cell);
  }
  if (vanished)
    audit.reason = fmt::format("sigmoid underflows to 0 in {} where exp(-x) overflows, or sigmoid is subnormal (x < {:.2f})",
                               name_of(dtype), -std::log(sigmoid_vanishes_from(dtype)));
  else if (rounded)
    audit.reason = fmt::format("its steps are rounded to {}, as declared, and not to f32",
                               unit > rounding_of(DType::f32).unit ? name_of(dtype) : "the dtype of the run");
  conclude(audit);
}

void judge_moved(const Tensor& expected, const std::vector<bool>& known, const Tensor& actual, OpAudit& audit) {
  const auto dtype = actual.dtype();
  const auto size = size_of(dtype);
  const auto right = expected.contiguous_bytes();
  const auto seen = actual.contiguous_bytes();
  const Vectors vectors(actual.shape());
  audit.dtype = dtype;
  for (std::int64_t vector = 0; vector < vectors.count; ++vector) {
    if (!known[static_cast<std::size_t>(vector)]) continue;
    auto cell = vectors.cell(vector);
    cell.count = vectors.channels;
    for (std::int64_t channel = 0; channel < vectors.channels; ++channel) {
      const auto at = static_cast<std::size_t>(vector * vectors.channels + channel) * size;
      if (std::memcmp(right.data() + at, seen.data() + at, size) == 0) continue;
      const double wanted = load(dtype, right.data() + at), found = load(dtype, seen.data() + at);
      if (std::isnan(wanted) && std::isnan(found)) continue;
      if (audit.over == 0) {
        audit.expected = wanted;
        audit.actual = found;
        audit.worst = vectors.index(cell, channel);
      }
      const double error = std::abs(found - wanted);
      if (std::isfinite(error)) audit.error_max = std::max(audit.error_max, error);
      audit.over += 1;
      cell.over += 1;
      cell.ratio = audit.ratio_max = audit.standard_ratio_max = kInfinity;
    }
    audit.count += cell.count;
    audit.cells.push_back(cell);
  }
  conclude(audit);
}

}  // namespace culprit
