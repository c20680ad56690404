#include "locate/explore.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "decode/model_weights.h"

namespace culprit {

const AuditedRun* Exploration::find(const std::string& arm) const {
  for (const auto& run : runs)
    if (run.arm.name == arm) return &run;
  return nullptr;
}

std::vector<Op> Exploration::corrupted_ops(const Graph& graph) const {
  std::map<Op, int> first;
  for (const auto& run : runs)
    for (const auto& op : run.report.ops) {
      if (op.judgement != Judgement::corruption) continue;
      const auto kind = graph.nodes()[static_cast<std::size_t>(op.node)].op;
      const auto [place, fresh] = first.try_emplace(kind, op.node);
      if (!fresh) place->second = std::min(place->second, op.node);
    }
  std::vector<Op> kinds;
  for (const auto& [kind, node] : first) kinds.push_back(kind);
  std::ranges::sort(kinds, {}, [&](Op kind) { return first.at(kind); });
  return kinds;
}

namespace {

std::string variant_of(const RunPlan& plan, Op op) {
  const auto found = plan.variants.find(std::string(name_of(op)));
  return found == plan.variants.end() ? "default" : found->second;
}

std::string variant_value(const RunPlan& plan, const std::string& key, const std::string& otherwise) {
  const auto found = plan.variants.find(key);
  return found == plan.variants.end() ? otherwise : found->second;
}

Observation observe(const AuditedRun& run, const Graph& graph, const OpAudit& op, const Cell& cell) {
  const auto& node = graph.nodes()[static_cast<std::size_t>(op.node)];
  const auto* record = run.made.trace->find(op.step, node.output);
  Observation o;
  o.bad = cell.over > 0;
  o.arm = run.arm.name;
  o.role = tap_role(node.output);
  o.layer = node.layer;
  o.rank = node.op == Op::rope && variant_value(run.arm.plan, "rope.rank", "4") == "3" ? 3 : static_cast<int>(record->layout.shape.size());
  o.rows = record->at.rows();
  o.offset_scalar = (variant_value(run.arm.plan, "rope.offset", "scalar") == "scalar" && !has_row_offsets(run.arm.plan)) || o.rows == 1;
  for (const auto& input : node.inputs)
    if (const auto* source = run.made.trace->find(op.step, input))
      o.input_contiguous = o.input_contiguous && source->layout.is_contiguous();
  o.cache = run.arm.plan.cache;
  o.variant = variant_of(run.arm.plan, node.op);
  o.tokens = record->at.tokens();
  o.base = run.arm.plan.position_base;
  const auto row = static_cast<std::size_t>(cell.row);
  const auto rows = rows_at(run.arm.plan, op.step);
  o.padded = (row < rows.size() && padding_of(run.arm.plan, rows[row]) > 0) ||
             (row < record->at.slot.size() && std::ranges::count(record->at.slot[row], -1) > 0);
  o.rows_changed = rows_changed_at(run.arm.plan, op.step);
  for (int before = 0; before < op.step; ++before) o.after_draft = o.after_draft || taken_back_after(run.arm.plan, before) > 0;
  o.restored = restored_before(run.arm.plan, op.step);
  if (!record->at.slot.empty())
    o.cached = std::ranges::count_if(record->at.slot[0], [](auto position) { return position >= 0; }) - o.tokens;
  o.row = cell.row;
  o.head = cell.head;
  o.heads = cell.head < 0 ? 1 : static_cast<int>(record->layout.shape[1]);
  if (node.op == Op::cache_write) {
    o.slot = cell.token;
    return o;
  }
  o.token = cell.token;
  o.position = record->at.position[static_cast<std::size_t>(cell.row)][static_cast<std::size_t>(cell.token)];
  return o;
}

}  // namespace

std::vector<Observation> Exploration::observations(const Graph& graph, Op kind) const {
  std::vector<Observation> all;
  std::set<std::string> bad_roles;
  for (const auto& run : runs)
    for (const auto& op : run.report.ops) {
      if (graph.nodes()[static_cast<std::size_t>(op.node)].op != kind || op.judgement == Judgement::not_tested) continue;
      for (const auto& cell : op.cells) all.push_back(observe(run, graph, op, cell));
    }
  return all;
}

std::vector<RecordedOp> Exploration::records(const Graph& graph, Op kind) const {
  // A variant is another implementation of the op: one that is never wrong says nothing of how the wrong one fails.
  std::set<std::string> wrong_variants;
  for (const auto& run : runs)
    for (const auto& op : run.report.ops)
      if (graph.nodes()[static_cast<std::size_t>(op.node)].op == kind && op.judgement == Judgement::corruption)
        wrong_variants.insert(variant_of(run.arm.plan, kind));
  std::vector<RecordedOp> all;
  for (const auto& run : runs)
    if (wrong_variants.contains(variant_of(run.arm.plan, kind)))
      for (auto& record : records_of(run, graph, kind)) all.push_back(std::move(record));
  return all;
}

std::vector<RecordedOp> records_of(const AuditedRun& run, const Graph& graph, Op kind) {
  std::vector<RecordedOp> all;
  for (const auto& op : run.report.ops)
    if (graph.nodes()[static_cast<std::size_t>(op.node)].op == kind && op.judgement != Judgement::not_tested)
      all.push_back({run.made.trace.get(), op.step, op.node, op.judgement == Judgement::corruption, op.variant});
  return all;
}

AuditOptions audit_options(const Json& hello) {
  AuditOptions options;
  for (const auto& [op, facts] : hello.at("ops").items()) {
    if (!facts.contains("arithmetic")) continue;
    for (const auto& [variant, arithmetic] : facts.at("arithmetic").items()) {
      Arithmetic declared;
      declared.declared = true;
      const auto accumulate = arithmetic.value("accumulate", "f32");
      declared.in_dtype = accumulate == "dtype";
      if (!declared.in_dtype)
        if (const auto dtype = parse_dtype(accumulate)) declared.accumulate = *dtype;
      options.arithmetic[op + "." + variant] = declared;
      if (!facts.at("variants").empty() && facts.at("variants").front() == variant) options.arithmetic[op] = declared;
    }
  }
  return options;
}

std::vector<std::string> tap_globs(const std::vector<std::string>& roles, const Graph& graph) {
  std::vector<std::string> globs;
  for (const auto& role : roles) globs.push_back(graph.find(role) != nullptr ? role : "layers.*." + role);
  return globs;
}

RunPlan with_interventions(RunPlan plan, Intervention::Kind kind, const std::vector<std::string>& taps) {
  for (const auto& tap : taps) {
    Intervention intervention;
    intervention.kind = kind;
    intervention.tap = tap;
    plan.interventions.push_back(std::move(intervention));
  }
  return plan;
}

Result<AuditedRun> run_and_audit(Session& session, const Model& model, UsedWeights& weights, const Arm& arm, const std::string& purpose) {
  AuditedRun run;
  run.arm = arm;
  CULPRIT_TRY(run.made, session.run(arm.plan, purpose));
  CULPRIT_TRY(auto reports, audit(model, weights, {run.made.trace.get()}, audit_options(session.hello())));
  run.report = std::move(reports.front());
  return run;
}

namespace {

/// Whether the model has what the arm is about, and the engine offers it.
bool can_run(const Session& session, const Model& model, const Arm& arm) {
  const auto is_needed = [&](const Node& node) { return name_of(node.op) == arm.needs_op; };
  const bool has_op =
      arm.needs_op.empty() || (std::ranges::any_of(model.graph().nodes(), is_needed) && session.offers(arm.needs_op, arm.needs_variant));
  return has_op && session.offers(arm.plan.sync);
}

/// Of the weights in an engine.
std::int64_t dense_bytes(const Model& model, DType dtype) {
  std::int64_t elements = 0;
  for (const auto& weight : model_weights(model.graph())) elements += element_count(weight.shape);
  return elements * static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace

Result<Exploration> explore(Session& session, const Model& model, UsedWeights& weights, const std::vector<Arm>& arms,
                            const std::function<void(const std::string&)>& progress) {
  Exploration exploration;
  std::vector<const Trace*> traces;
  std::vector<RunPlan> plans;
  for (const auto& arm : arms)
    if (can_run(session, model, arm)) plans.push_back(arm.plan);
  session.run_ahead(plans, dense_bytes(model, session.loaded().dtype));
  for (const auto& arm : arms) {
    if (exploration.failure) {
      exploration.skipped.push_back(fmt::format("arm {}: the engine failed before", arm.name));
      continue;
    }
    const auto is_needed = [&](const Node& node) { return name_of(node.op) == arm.needs_op; };
    if (!arm.needs_op.empty() && std::ranges::none_of(model.graph().nodes(), is_needed)) continue;  // the model has nothing of that kind
    if (!arm.needs_op.empty() && !session.offers(arm.needs_op, arm.needs_variant)) {
      exploration.skipped.push_back(fmt::format("arm {}: the engine has no {} variant of {}", arm.name, arm.needs_variant, arm.needs_op));
      continue;
    }
    if (!session.offers(arm.plan.sync)) {
      exploration.skipped.push_back(fmt::format("arm {}: the engine does not evaluate {}", arm.name, name_of(arm.plan.sync)));
      continue;
    }
    AuditedRun run;
    run.arm = arm;
    if (progress) progress(fmt::format("running arm {}", arm.name));
    auto made = session.run(arm.plan, arm.what);
    if (!made && made.error().id == "not-supported") {  // such as packed weights of a model that has none
      exploration.skipped.push_back(fmt::format("arm {}: {}", arm.name, made.error().message));
      continue;
    }
    if (!made && is_engine_failure(made.error())) {
      exploration.failure = made.error();
      continue;
    }
    CULPRIT_TRY(run.made, std::move(made));
    traces.push_back(run.made.trace.get());
    exploration.runs.push_back(std::move(run));
  }
  session.stop_running_ahead();
  if (progress) progress(fmt::format("auditing {} runs", traces.size()));
  CULPRIT_TRY(auto reports, audit(model, weights, traces, audit_options(session.hello())));
  for (std::size_t i = 0; i < reports.size(); ++i) exploration.runs[i].report = std::move(reports[i]);
  return exploration;
}

}  // namespace culprit
