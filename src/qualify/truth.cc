#include "qualify/truth.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>

#include "locate/recorded_call.h"

namespace culprit {
namespace {

/// The vectors of channels of an op's output, as the audit's cells number them.
struct Vectors {
  std::int64_t rows, heads, tokens, bytes;  // bytes of one vector
  bool has_heads;

  explicit Vectors(const Tensor& tensor)
      : rows(tensor.dim(0)),
        heads(tensor.rank() == 4 ? tensor.dim(1) : 1),
        tokens(tensor.dim(tensor.rank() - 2)),
        bytes(tensor.shape().back() * static_cast<std::int64_t>(size_of(tensor.dtype()))),
        has_heads(tensor.rank() == 4) {}
  [[nodiscard]] std::size_t number(std::int64_t row, std::int64_t head, std::int64_t token) const {
    return static_cast<std::size_t>((row * heads + head) * tokens + token);
  }
};

bool equal_bytes(const Tensor& one, const Tensor& other) {
  const auto a = one.contiguous(), b = other.contiguous();
  return a.shape() == b.shape() && a.dtype() == b.dtype() && std::ranges::equal(a.contiguous_bytes(), b.contiguous_bytes());
}

/// What the faults make of the call, one after the other; nothing when none changes it.
Result<std::optional<Tensor>> broken_output(const std::vector<FaultSpec>& faults, OpCall call) {
  std::optional<Tensor> output;
  for (const auto& fault : faults) {
    CULPRIT_TRY(auto broken, apply_fault(fault, call));
    if (!broken) continue;
    call.result = *broken;
    output = std::move(broken);
  }
  return output;
}

/// For each vector of `right` whether `broken` has other bits there.
std::vector<bool> changed_vectors(const Tensor& right, const std::optional<Tensor>& broken, const Vectors& vectors) {
  std::vector<bool> changed(static_cast<std::size_t>(vectors.rows * vectors.heads * vectors.tokens), false);
  if (!broken) return changed;
  const auto a = right.contiguous(), b = broken->contiguous();
  for (std::size_t i = 0; i < changed.size(); ++i) {
    const auto at = i * static_cast<std::size_t>(vectors.bytes);
    changed[i] =
        std::memcmp(a.contiguous_bytes().data() + at, b.contiguous_bytes().data() + at, static_cast<std::size_t>(vectors.bytes)) != 0;
  }
  return changed;
}

/// A cache's vectors by what they hold, which another step may have in another slot.
using Held = std::tuple<int, std::int64_t, std::int64_t>;  // sequence, position, head

/// Adds to `changed` what an earlier step broke and no step has written since. `broken` is what was broken after the step before, and
/// becomes what is after this one.
void add_lasting(const Coordinates& at, const Vectors& vectors, std::set<Held>& broken, std::vector<bool>& changed) {
  for (std::size_t row = 0; row < at.slot.size(); ++row) {
    const std::set<std::int64_t> fed(at.position[row].begin(), at.position[row].end());
    for (std::int64_t slot = 0; slot < vectors.tokens; ++slot) {
      const auto position = at.slot[row][static_cast<std::size_t>(slot)];
      if (position < 0) continue;
      for (std::int64_t head = 0; head < vectors.heads; ++head) {
        const auto place = vectors.number(static_cast<std::int64_t>(row), head, slot);
        const Held held{at.sequence[row], position, head};
        if (fed.contains(position)) broken.erase(held);
        if (changed[place]) broken.insert(held);
        changed[place] = broken.contains(held);
      }
    }
  }
}

/// A cell for each vector, over where it is changed. Dead slots of a cache are no places: nothing reads them.
std::vector<Cell> cells_of(const Vectors& vectors, const std::vector<bool>& changed, const std::vector<std::vector<std::int64_t>>* slots) {
  std::vector<Cell> cells;
  for (std::int64_t row = 0; row < vectors.rows; ++row)
    for (std::int64_t head = 0; head < vectors.heads; ++head)
      for (std::int64_t token = 0; token < vectors.tokens; ++token) {
        if (slots != nullptr && (*slots)[static_cast<std::size_t>(row)][static_cast<std::size_t>(token)] < 0) continue;
        Cell cell;
        cell.row = static_cast<int>(row);
        cell.head = vectors.has_heads ? static_cast<int>(head) : -1;
        cell.token = static_cast<int>(token);
        cell.over = changed[vectors.number(row, head, token)] ? 1 : 0;
        cells.push_back(cell);
      }
  return cells;
}

}  // namespace

void PlantedRuns::add(RunPlan plan, std::shared_ptr<const Trace> trace) {
  AuditedRun run;
  run.arm.name = plan.name;
  run.arm.plan = std::move(plan);
  run.made.trace = std::move(trace);
  runs_.runs.push_back(std::move(run));
}

bool PlantedRuns::may_break(Op op) const {
  return std::ranges::any_of(faults_, [&](const FaultSpec& spec) {
    const auto* entry = find_fault(spec.id);
    return entry != nullptr && entry->can_break(op);
  });
}

Result<void> PlantedRuns::ask_faults() {
  const auto& nodes = model_.graph().nodes();
  for (auto& run : runs_.runs)
    for (std::size_t node = 0; node < nodes.size(); ++node)
      if (may_break(nodes[node].op)) CULPRIT_CHECK(ask_faults_at(run, static_cast<int>(node)));
  return {};
}

Result<void> PlantedRuns::ask_faults_at(AuditedRun& run, int index) {
  const auto& node = model_.graph().nodes()[static_cast<std::size_t>(index)];
  std::set<Held> lasting;
  for (int step = 0; step < steps_of(run.arm.plan); ++step) {
    const auto* record = run.made.trace->find(step, node.output);
    if (record == nullptr) continue;
    CULPRIT_TRY(const auto recorded, recorded_call(model_, *weights_, *run.made.trace, step, node));
    CULPRIT_TRY(const auto broken, broken_output(faults_, recorded.call));
    const Vectors vectors(recorded.call.result);
    auto changed = changed_vectors(recorded.call.result, broken, vectors);
    if (run.arm.plan.reprefill) lasting.clear();
    if (node.op == Op::cache_write) add_lasting(record->at, vectors, lasting, changed);
    OpAudit audit;
    audit.node = index;
    audit.step = step;
    audit.cells = cells_of(vectors, changed, node.op == Op::cache_write ? &record->at.slot : nullptr);
    for (const auto& cell : audit.cells) audit.over += cell.over;
    if (audit.over > 0) broken_.insert(node.op);
    audit.judgement = audit.over > 0 ? Judgement::corruption : Judgement::within;
    run.report.ops.push_back(std::move(audit));
  }
  return {};
}

Places PlantedRuns::places(Op op) const {
  Places places;
  places.all = runs_.observations(model_.graph(), op);
  int call = 0;
  for (const auto& run : runs_.runs)
    for (const auto& audit : run.report.ops) {
      if (model_.graph().nodes()[static_cast<std::size_t>(audit.node)].op != op) continue;
      places.calls.insert(places.calls.end(), audit.cells.size(), call++);
    }
  return places;
}

Result<bool> PlantedRuns::same_as_planted(Op op, const FaultSpec& spec) {
  for (const auto& run : runs_.runs)
    for (const auto& audit : run.report.ops) {
      const auto& node = model_.graph().nodes()[static_cast<std::size_t>(audit.node)];
      if (node.op != op) continue;
      CULPRIT_TRY(const auto recorded, recorded_call(model_, *weights_, *run.made.trace, audit.step, node));
      CULPRIT_TRY(const auto planted, broken_output(faults_, recorded.call));
      CULPRIT_TRY(const auto other, broken_output({spec}, recorded.call));
      if (planted.has_value() != other.has_value()) return false;
      if (planted && !equal_bytes(*planted, *other)) return false;
    }
  return true;
}

std::vector<const Entry*> exploring_entries(const Ledger& ledger, const std::vector<FaultSpec>& faults) {
  const auto equal = [&](const RunPlan& plan) { return std::ranges::equal(plan.faults, faults, {}, &FaultSpec::text, &FaultSpec::text); };
  std::vector<const Entry*> entries;
  for (const auto& entry : ledger.entries()) {
    if (!equal(entry.plan) || !entry.plan.interventions.empty() || entry.plan.capture != RunPlan().capture) break;
    entries.push_back(&entry);
  }
  return entries;
}

}  // namespace culprit
