#include "audit/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "audit/weights.h"
#include "cli/context.h"
#include "cli/json_text.h"
#include "cli/verbs.h"
#include "engine/plan.h"
#include "locate/explore.h"

namespace culprit::cli {
namespace {

/// All outputs of one op in one variant and dtype.
struct Line {
  std::int64_t outputs = 0, not_tested = 0, elements = 0, over = 0, precision = 0, vacuous = 0;
  double ratio_max = 0;
  std::string worst;   // the tap, step and index of ratio_max
  std::string reason;  // the first one why something was not tested
};
using Lines = std::map<std::string, Line>;

struct Audited {
  Trace trace;
  AuditReport report;
  Lines lines;
};

Lines lines_of(const AuditReport& report, const Graph& graph) {
  Lines lines;
  for (const auto& op : report.ops) {
    const auto& node = graph.nodes()[static_cast<std::size_t>(op.node)];
    auto& line = lines[fmt::format("{} {} {}", name_of(node.op), op.variant, name_of(op.dtype))];
    if (op.judgement == Judgement::not_tested) {
      ++line.not_tested;
      if (line.reason.empty()) line.reason = fmt::format("{}, step {}: {}", node.output, op.step, op.reason);
      continue;
    }
    ++line.outputs;
    line.elements += op.count;
    line.over += op.over;
    line.precision += op.precision;
    line.vacuous += op.vacuous;
    if (op.ratio_max <= line.ratio_max) continue;
    line.ratio_max = op.ratio_max;
    line.worst = fmt::format("{}, step {} {}: expected {:.6g}, actual {:.6g}, bound {:.3g}", node.output, op.step, Json(op.worst).dump(),
                             op.expected, op.actual, op.bound);
  }
  return lines;
}

/// What a trace says of how its weights were loaded.
Result<LoadPlan> load_plan_of(const Trace& trace) {
  if (!trace.header().contains("load")) return fail("trace-invalid", "its header does not say what was loaded", trace.folder().string());
  auto plan = load_plan_from_json(trace.header().at("load"));
  if (!plan) return fail("trace-invalid", plan.error().message, trace.folder().string());
  return plan;
}

Result<Audited> audit_one(const Context& context, const std::string& folder, const std::optional<std::string>& other_model) {
  CULPRIT_TRY(auto trace, Trace::open(folder));
  CULPRIT_TRY(const auto load, load_plan_of(trace));
  CULPRIT_TRY(const auto model, Model::open(other_model ? std::filesystem::path(*other_model) : load.model));
  context.progress(fmt::format("auditing {}", folder));
  ModelWeights weights(model, load.dtype, load.weight_fault);
  const auto options = trace.header().contains("hello") && trace.header().at("hello").contains("ops")
                           ? audit_options(trace.header().at("hello"))
                           : AuditOptions{};
  CULPRIT_TRY(auto reports, audit(model, weights, {&trace}, options));
  auto lines = lines_of(reports.front(), model.graph());
  return Audited{std::move(trace), std::move(reports.front()), std::move(lines)};
}

std::string to_text(const Audited& audited) {
  auto text = fmt::format("{}: {}, {} steps\n{:<28} {:>8} {:>11} {:>9} {:>10} {:>9} {:>12}\n", audited.trace.folder().string(),
                          audited.trace.complete() ? "complete" : "broke off: " + audited.trace.ended_by(), audited.trace.steps(),
                          "op, variant, dtype", "outputs", "elements", "outside", "precision", "vacuous", "error/bound");
  for (const auto& [name, line] : audited.lines)
    text += fmt::format("{:<28} {:>8} {:>11} {:>9} {:>10} {:>9} {:>12.4g}\n", name, line.outputs, line.elements, line.over, line.precision,
                        line.vacuous, line.ratio_max);
  for (const auto& [name, line] : audited.lines) {
    if (line.over > 0) text += fmt::format("outside: {}: {} of {} elements; worst {}\n", name, line.over, line.elements, line.worst);
    if (line.not_tested > 0) text += fmt::format("not tested: {}: {} outputs; {}\n", name, line.not_tested, line.reason);
  }
  return text;
}

Json to_json(const Audited& audited) {
  Json ops = Json::array();
  for (const auto& [name, line] : audited.lines)
    ops.push_back({{"op", name},
                   {"outputs", line.outputs},
                   {"not_tested", line.not_tested},
                   {"elements", line.elements},
                   {"outside", line.over},
                   {"precision", line.precision},
                   {"vacuous", line.vacuous},
                   {"ratio_max", json_number(line.ratio_max)},
                   {"worst", line.worst},
                   {"not_tested_reason", line.reason}});
  return {{"trace", audited.trace.folder().string()},
          {"complete", audited.trace.complete()},
          {"judgement", name_of(audited.report.worst())},
          {"ops", std::move(ops)}};
}

/// 1: an op is outside its bound; 3: there was nothing that could be judged.
int exit_code_of(const Audited& audited) {
  std::int64_t outputs = 0, over = 0;
  for (const auto& [name, line] : audited.lines) {
    outputs += line.outputs;
    over += line.over;
  }
  return over > 0 ? 1 : outputs == 0 ? 3 : 0;
}

Result<int> run_audit(Context& context, const Arguments& arguments) {
  std::optional<std::string> other_model;
  if (const auto name = arguments.value("model")) {
    CULPRIT_TRY(const auto path, context.registry().model(*name));
    other_model = path.string();
  }
  Json traces = Json::array();
  bool divergence = false, inconclusive = false;
  for (const auto& folder : arguments.positionals()) {
    CULPRIT_TRY(const auto audited, audit_one(context, folder, other_model));
    divergence |= exit_code_of(audited) == 1;
    inconclusive |= exit_code_of(audited) == 3;
    if (context.json())
      traces.push_back(to_json(audited));
    else
      context.out(to_text(audited));
  }
  if (context.json()) context.out_json(document("culprit-audit", {{"traces", std::move(traces)}}));
  return divergence ? 1 : inconclusive ? 3 : 0;
}

}  // namespace

const Verb kAudit = {
    .name = "audit",
    .summary = "re-do each op of recorded runs in float64 from its own recorded inputs, and say which are outside their bound",
    .details =
        "Weights are those of the checkpoint, as culprit hands them in; a run whose engine read them wrongly shows in the ops that use "
        "them.",
    .options = {{.name = "model", .placeholder = "MODEL", .help = "the checkpoint, when it is not where the trace says"}},
    .positionals = {{.name = "TRACE", .repeated = true}},
    .run = run_audit};

}  // namespace culprit::cli
