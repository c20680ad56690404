#pragma once
// Explanation: every fault model of an op predicts what the broken op would output, from the recorded inputs. A model explains a defect
// only if it matches every recorded output of the op, the right ones too, and no other model does.
#include <string>
#include <vector>

#include "audit/audit.h"
#include "fault/fault.h"
#include "locate/verdict.h"
#include "trace/trace.h"

namespace culprit {

/// One recorded output of the op.
struct RecordedOp {
  const Trace* trace = nullptr;
  int step = 0;
  int node = 0;  // index in the graph
  bool bad = false;
  std::string variant;  // of the op
};

struct Explanation {
  std::vector<FaultSpec> accepted;  // models that match everything; one: explained; several: look-alikes that these runs cannot tell apart
  std::vector<FaultSpec> alike;  // the one accepted with each other value of its parameters: the same predictions, so none of them matters
  std::vector<PredictionScore> scores;  // of every hypothesis whose trigger was met, best first
  std::vector<std::string> rejected;    // "F08: predicts 576 of 4,608 elements wrongly"
};

/// How well `spec` predicts `records`, from their own recorded inputs.
[[nodiscard]] Result<PredictionScore> predict(const Model& model, UsedWeights& weights, const FaultSpec& spec,
                                              const std::vector<RecordedOp>& records, const AuditOptions& options);

/// Matches within legal arithmetic: a model that copies must match bit for bit; one that computes from other inputs within the op's own
/// bound at those inputs. Bad records are tried first, so that most models fall after a few. When no model of the whole op does, and the op is
/// wrong at some taps only, each model is tried again confined to their role, their layer, or the one tap, in that order: FaultSpec's `tap`.
[[nodiscard]] Result<Explanation> explain(const Model& model, UsedWeights& weights, Op op, const std::vector<RecordedOp>& records,
                                          const AuditOptions& options);

}  // namespace culprit
