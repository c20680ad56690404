#include "audit/items.h"

#include <fmt/format.h>

#include <set>

namespace culprit {
namespace {

const Json* field(const Json& object, const std::string& key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

// hello.ops.OP of the trace's header.
const Json* declared_op(const Trace& trace, const std::string& op) {
  const Json* json = field(trace.header(), "hello");
  if (json != nullptr) json = field(*json, "ops");
  return json == nullptr ? nullptr : field(*json, op);
}

std::string default_variant(const Trace& trace, const std::string& op) {
  const auto* declared = declared_op(trace, op);
  const auto* variants = declared == nullptr ? nullptr : field(*declared, "variants");
  if (variants == nullptr || !variants->is_array() || variants->empty() || !variants->front().is_string()) return "default";
  return variants->front().get<std::string>();
}

std::string reason_not_tested(const Trace& trace, int step, const Node& node, AuditItem& item) {
  item.output = trace.find(step, node.output);
  if (item.output == nullptr) return "its output was not recorded";
  if (item.output->file.empty()) return "only a hash of its output was recorded";
  if (item.output->note == "replaced") return "its output was replaced by an intervention";
  for (const auto& name : node.inputs) {
    const auto* input = trace.find(step, name);
    const bool has_values = input != nullptr && !input->file.empty();
    item.inputs.push_back(has_values ? input : nullptr);
    if (has_values || node.op == Op::cache_write) continue;
    return fmt::format("{} {}", name, input == nullptr ? "was not recorded" : "was recorded as a hash only");
  }
  return {};
}

}  // namespace

Arithmetic arithmetic_of(const Trace& trace, const std::string& op, const std::string& variant, const AuditOptions& options) {
  if (const auto found = options.arithmetic.find(op + "." + variant); found != options.arithmetic.end()) return found->second;
  if (const auto found = options.arithmetic.find(op); found != options.arithmetic.end() && variant == default_variant(trace, op))
    return found->second;
  Arithmetic arithmetic;
  const auto* declared = declared_op(trace, op);
  for (const auto& key : {std::string("arithmetic"), variant, std::string("accumulate")})
    declared = declared == nullptr ? nullptr : field(*declared, key);
  if (declared == nullptr || !declared->is_string()) return arithmetic;
  const auto accumulate = declared->get<std::string>();
  arithmetic.in_dtype = accumulate == "dtype";
  const auto dtype = parse_dtype(accumulate);
  arithmetic.declared = arithmetic.in_dtype || (dtype && is_float(*dtype));
  if (dtype && is_float(*dtype)) arithmetic.accumulate = *dtype;
  return arithmetic;
}

Result<AuditedTrace> audited_trace(const Trace& trace) {
  AuditedTrace audited{&trace, {}};
  CULPRIT_TRY(const auto plan, get_field<Json>(trace.header(), "plan", "trace header"));
  CULPRIT_TRY(audited.plan, run_plan_from_json(plan));
  CULPRIT_CHECK(validate(audited.plan));
  for (const auto& record : trace.records())
    if (record.step >= steps_of(audited.plan))
      return fail("trace-invalid", fmt::format("{} has step {}, the plan {} steps", record.tap, record.step, steps_of(audited.plan)),
                  trace.folder().string());
  return audited;
}

AuditReport collect_items(const Model& model, const std::vector<AuditedTrace>& traces, std::size_t index, const AuditOptions& options,
                          std::vector<AuditItem>& items) {
  const auto& [trace, plan] = traces[index];
  std::set<int> steps;
  for (const auto& record : trace->records()) steps.insert(record.step);
  std::map<Op, std::pair<std::string, Arithmetic>> arithmetic;
  for (const auto op : all_ops()) {
    const std::string name(name_of(op));
    const auto chosen = plan.variants.find(name);
    const auto variant = chosen == plan.variants.end() ? default_variant(*trace, name) : chosen->second;
    arithmetic[op] = {variant, arithmetic_of(*trace, name, variant, options)};
  }
  AuditReport report;
  const auto& nodes = model.graph().nodes();
  for (const int step : steps)
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      OpAudit audit;
      audit.node = static_cast<int>(n);
      audit.step = step;
      audit.judgement = Judgement::not_tested;
      audit.variant = arithmetic[nodes[n].op].first;
      audit.assumed = !arithmetic[nodes[n].op].second.declared;
      AuditItem item{.trace = index,
                     .place = report.ops.size(),
                     .node = &nodes[n],
                     .output = nullptr,
                     .inputs = {},
                     .arithmetic = arithmetic[nodes[n].op].second};
      audit.reason = reason_not_tested(*trace, step, nodes[n], item);
      if (item.output != nullptr) audit.dtype = item.output->layout.dtype;
      if (audit.reason.empty()) items.push_back(std::move(item));
      report.ops.push_back(std::move(audit));
    }
  return report;
}

Result<std::vector<std::vector<int>>> tokens_at(const RunPlan& plan, int step, const Coordinates& at) {
  // The last tokens of a step may be none of the row's: their numbers are those behind what it feeds for good, or has fed.
  const auto foreign_count = static_cast<std::int64_t>(foreign_at(plan, step));
  const auto rows = rows_at(plan, step);
  std::vector<std::vector<int>> tokens;
  for (std::size_t i = 0; i < at.position.size(); ++i) {
    auto& ids = tokens.emplace_back();
    const auto* sequence = i < rows.size() ? &plan.sequences[rows[i]] : nullptr;
    const auto padding = sequence == nullptr ? 0 : padding_of(plan, rows[i]);
    const auto foreign = sequence != nullptr && foreign_count > 0 ? foreign_tokens(plan, step, i) : std::vector<int>();
    const auto foreign_from =
        sequence == nullptr ? 0 : std::int64_t{fed_through(plan, step, rows[i])} + foreign_held(plan, step) - foreign_count - padding;
    for (const auto position : at.position[i]) {
      const auto index = position - plan.position_base;
      const bool is_foreign = sequence == nullptr || (foreign_count > 0 && index >= foreign_from);
      const auto place = is_foreign ? index - foreign_from : index;
      const auto& source = is_foreign ? foreign : *sequence;
      if (place < -padding || place >= std::ssize(source))
        return fail("trace-invalid", fmt::format("row {} holds position {}, which the plan's sequence does not reach", i, position));
      ids.push_back(place < 0 ? kPaddingToken : source[static_cast<std::size_t>(place)]);
    }
  }
  return tokens;
}

}  // namespace culprit
