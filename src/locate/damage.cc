#include "locate/damage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "compare/compare.h"
#include "locate/relate.h"

namespace culprit {
namespace {

constexpr std::string_view kLogits = "logits";

bool is_cache(std::string_view tap) { return tap.ends_with("_cache"); }

/// [row][token], or [row][slot] of a cache.
const std::vector<std::vector<std::int64_t>>& positions_of(const TapRecord& record) {
  return is_cache(record.tap) ? record.at.slot : record.at.position;
}

std::vector<const OpAudit*> corrupted(const AuditedRun& run, const Graph& graph, Op op) {
  std::vector<const OpAudit*> found;
  for (const auto& audited : run.report.ops)
    if (audited.judgement == Judgement::corruption && graph.nodes()[static_cast<std::size_t>(audited.node)].op == op)
      found.push_back(&audited);
  return found;
}

/// Where the defect struck, and so what it can have reached.
class Reach {
 public:
  Reach(const AuditedRun& bad, const std::vector<const OpAudit*>& corrupted, const Graph& graph) : plan_(bad.arm.plan) {
    for (const auto* audited : corrupted) {
      const auto* record = bad.made.trace->find(audited->step, graph.nodes()[static_cast<std::size_t>(audited->node)].output);
      for (const auto& cell : audited->cells) {
        if (cell.over == 0) continue;
        const auto row = static_cast<std::size_t>(cell.row);
        const auto position = positions_of(*record).at(row)[static_cast<std::size_t>(cell.token)];
        if (position < 0) continue;  // a dead slot is nobody's
        const auto [first, fresh] = first_.try_emplace({plan_row(audited->step, row), audited->step}, position);
        if (!fresh) first->second = std::min(first->second, position);
      }
    }
  }

  /// The first position that is affected in a row of a step's batch.
  [[nodiscard]] std::int64_t first(int step, std::size_t row) const {
    auto least = std::numeric_limits<std::int64_t>::max();
    const auto wanted = plan_row(step, row);
    for (const auto& [place, position] : first_)
      if (place.first == wanted && place.second <= step) least = std::min(least, position);
    return least;
  }

 private:
  [[nodiscard]] std::size_t plan_row(int step, std::size_t row) const { return rows_at(plan_, step).at(row); }

  const RunPlan& plan_;
  std::map<std::pair<std::size_t, int>, std::int64_t> first_;  // by row of the plan and step
};

/// Errors and right values over a set of elements.
struct Norms {
  std::int64_t elements = 0, differing = 0;
  double error_max = 0;
  SquareSum error, right, bad;

  void add(double expected, double actual) {
    ++elements;
    right.add(expected);
    bad.add(actual);
    if (expected == actual || (std::isnan(expected) && std::isnan(actual))) return;
    ++differing;
    const double distance = std::abs(actual - expected);
    if (std::isnan(distance) || distance > error_max) error_max = distance;  // NaN is further than any number, and stays
    error.add(distance);
  }
  [[nodiscard]] double relative_l2() const {
    const double norm = error.root();
    return norm == 0 ? 0 : norm / right.root();
  }
  [[nodiscard]] double norm_ratio() const { return differing == 0 ? 1 : bad.root() / right.root(); }
};

/// All of one tap.
struct TapNorms {
  std::int64_t places = 0;  // that are affected
  Norms affected, elsewhere, noise;
};

/// Argmaxes of one position's logits.
Result<void> count_flip(const Tensor& right, const Tensor& bad, Damage& damage) {
  ++damage.positions;
  CULPRIT_TRY(const auto flip, flip_between({right.values(), right.dtype()}, {bad.values(), bad.dtype()}));
  if (flip) ++(flip->tie ? damage.ties : damage.flips);
  return {};
}

/// What two or three recordings of one value show.
struct Recorded {
  Tensor right, bad;
  std::optional<Tensor> again;  // only where its hash differs from that of `right`
};

Result<void> add_record(const TapRecord& record, const Recorded& recorded, const Reach& reach, TapNorms& norms, Damage& damage) {
  const auto& right = recorded.right;
  const int axis = right.rank() - 2;
  const auto& rows = positions_of(record);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const auto first = reach.first(record.step, row);
    const auto& positions = rows[row];
    if (axis < 1 || right.dim(0) != static_cast<std::int64_t>(rows.size()) ||
        right.dim(axis) != static_cast<std::int64_t>(positions.size()))
      return fail("trace-invalid",
                  fmt::format("step {}, tap {}: shape {} does not fit its coordinates", record.step, record.tap, to_string(right.shape())));
    for (std::size_t token = 0; token < positions.size(); ++token) {
      if (positions[token] < 0) continue;
      const auto at = [&](const Tensor& tensor) {
        const auto r = static_cast<std::int64_t>(row), t = static_cast<std::int64_t>(token);
        return tensor.sliced(0, r, r + 1).sliced(axis, t, t + 1);
      };
      const bool affected = positions[token] >= first;
      auto& sums = affected ? norms.affected : norms.elsewhere;
      const auto expected = at(right).values(), actual = at(recorded.bad).values();
      for (std::size_t i = 0; i < expected.size(); ++i) sums.add(expected[i], actual[i]);
      if (!affected) continue;
      ++norms.places;
      if (recorded.again) {
        const auto repeated = at(*recorded.again).values();
        for (std::size_t i = 0; i < expected.size(); ++i) norms.noise.add(expected[i], repeated[i]);
      }
      if (record.tap == kLogits) CULPRIT_CHECK(count_flip(at(right).contiguous(), at(recorded.bad).contiguous(), damage));
    }
  }
  return {};
}

Result<Recorded> recorded_in(const TapRecord& record, const Made& right, const Made& bad, const Made& again, Damage& damage) {
  const auto* in_bad = bad.trace->find(record.step, record.tap);
  const auto* in_again = again.trace->find(record.step, record.tap);
  if (in_bad == nullptr || in_again == nullptr || in_bad->layout.shape != record.layout.shape)
    return fail("trace-invalid", fmt::format("step {}, tap {}: the runs did not record the same", record.step, record.tap),
                bad.trace->folder().string());
  Recorded recorded;
  CULPRIT_TRY(recorded.right, right.trace->tensor(record));
  CULPRIT_TRY(recorded.bad, bad.trace->tensor(*in_bad));
  if (in_again->hash != record.hash) {
    damage.repeatable = false;
    CULPRIT_TRY(recorded.again, again.trace->tensor(*in_again));
  }
  return recorded;
}

/// Outputs of the nodes that have one of `own` among what they were computed from, and `own` itself.
std::set<std::string> behind(const Graph& graph, const std::set<std::string>& own) {
  auto found = own;
  for (const auto& node : graph.nodes())
    if (std::ranges::any_of(node.inputs, [&](const std::string& input) { return found.contains(input); })) found.insert(node.output);
  return found;
}

/// The tap that the others are held against: of the defect's own in the first layer that has it, where the inputs are still right, the one
/// that is furthest off.
const TapDamage* reference_tap(const Graph& graph, const std::vector<const OpAudit*>& corrupted, const std::vector<TapDamage>& taps) {
  int first = corrupted.front()->node;
  for (const auto* audited : corrupted) first = std::min(first, audited->node);
  const auto layer = graph.nodes()[static_cast<std::size_t>(first)].layer;
  const TapDamage* reference = nullptr;
  for (const auto& tap : taps)
    for (const auto* audited : corrupted) {
      const auto& node = graph.nodes()[static_cast<std::size_t>(audited->node)];
      if (node.output != tap.tap || node.layer != layer) continue;
      if (reference == nullptr || std::isnan(tap.relative_l2) || tap.relative_l2 > reference->relative_l2) reference = &tap;
    }
  return reference;
}

}  // namespace

Result<Damage> damage_between(const Graph& graph, Op op, const AuditedRun& bad, const Made& right, const Made& right_again) {
  const auto wrong = corrupted(bad, graph, op);
  if (wrong.empty()) return fail("cannot-show", fmt::format("{} is inside its bound in arm '{}'", name_of(op), bad.arm.name));
  const Reach reach(bad, wrong, graph);
  Damage damage;
  damage.arm = bad.arm.name;
  damage.entries = {right.entry, right_again.entry, bad.made.entry};
  std::map<std::string, TapNorms> all;
  for (const auto& record : right.trace->records()) {
    CULPRIT_TRY(const auto recorded, recorded_in(record, right, bad.made, right_again, damage));
    CULPRIT_CHECK(add_record(record, recorded, reach, all[record.tap], damage));
  }
  std::set<std::string> own;
  for (const auto* audited : wrong) own.insert(graph.nodes()[static_cast<std::size_t>(audited->node)].output);
  const auto reached = behind(graph, own);
  for (const auto& node : graph.nodes()) {
    const auto found = all.find(node.output);
    if (found == all.end() || found->second.affected.elements == 0) continue;
    const auto& [places, affected, elsewhere, noise] = found->second;
    TapDamage tap;
    tap.tap = node.output;
    tap.layer = node.layer;
    tap.own = own.contains(node.output);
    tap.behind = reached.contains(node.output);
    tap.places = places;
    tap.elements = affected.elements;
    tap.differing = affected.differing;
    tap.error_max = affected.error_max;
    tap.relative_l2 = affected.relative_l2();
    tap.norm_ratio = affected.norm_ratio();
    tap.elsewhere_elements = elsewhere.elements;
    tap.elsewhere_relative_l2 = elsewhere.relative_l2();
    tap.noise_relative_l2 = noise.relative_l2();
    damage.taps.push_back(std::move(tap));
  }
  const auto* reference = reference_tap(graph, wrong, damage.taps);
  if (reference == nullptr) return fail("cannot-show", fmt::format("no output of {} has values in both runs", name_of(op)));
  damage.reference_tap = reference->tap;
  const double whole = reference->relative_l2;
  for (auto& tap : damage.taps) tap.share = tap.relative_l2 / whole;
  return damage;
}

Result<Damage> measure_damage(Session& session, const Graph& graph, Op op, const AuditedRun& bad, const AuditedRun& right) {
  CULPRIT_TRY(const auto again, session.run_again(right.arm.plan, "damage: the right run once more, for its noise"));
  return damage_between(graph, op, bad, right.made, again);
}

std::vector<const TapDamage*> main_taps(const Damage& damage) {
  std::vector<const TapDamage*> chosen;
  const auto first = std::ranges::find(damage.taps, damage.reference_tap, &TapDamage::tap)->layer;
  int last = first;
  for (const auto& tap : damage.taps) last = std::max(last, tap.layer);
  for (const auto& tap : damage.taps) {
    const bool ends_layer = tap_role(tap.tap) == "residual" && (tap.layer == first + 1 || tap.layer == last);
    if (tap.behind && (tap.layer == first || ends_layer || tap.tap == kLogits)) chosen.push_back(&tap);
  }
  return chosen;
}

}  // namespace culprit
