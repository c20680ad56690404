#pragma once
// Which ops of a trace can be audited, and with which arithmetic.
#include <cstddef>
#include <string>
#include <vector>

#include "audit/audit.h"
#include "engine/plan.h"

namespace culprit {

/// One op of one trace at one step whose output and inputs have recorded values. The inputs are the records that the producers of those
/// taps made at the same step of the same trace: a tap has one record a step, so what an op is audited from is what its producer is audited
/// for.
struct AuditItem {
  std::size_t trace = 0;  // index in the traces given
  std::size_t place = 0;  // index in that trace's report
  const Node* node = nullptr;
  const TapRecord* output = nullptr;
  std::vector<const TapRecord*> inputs;  // cache_write: nullptr when it was not recorded
  Arithmetic arithmetic;
};

/// What the audit needs of a trace's header.
struct AuditedTrace {
  const Trace* trace = nullptr;
  RunPlan plan;
};
/// Error ids: trace-invalid, and the plan's.
[[nodiscard]] Result<AuditedTrace> audited_trace(const Trace& trace);

/// What an engine's arithmetic in `variant` of `op` is: as `options` say, else as its hello in the trace's header declares, else the default.
[[nodiscard]] Arithmetic arithmetic_of(const Trace& trace, const std::string& op, const std::string& variant, const AuditOptions& options);

/// A report with an entry for each step and node of `traces[index]`, and items for those that can be audited; the others have their reason.
[[nodiscard]] AuditReport collect_items(const Model& model, const std::vector<AuditedTrace>& traces, std::size_t index,
                                        const AuditOptions& options, std::vector<AuditItem>& items);

/// Token ids [row][token] of a step, those that are taken back included. Error ids: trace-invalid when the plan's sequences do not reach a position.
[[nodiscard]] Result<std::vector<std::vector<int>>> tokens_at(const RunPlan& plan, int step, const Coordinates& at);

}  // namespace culprit
