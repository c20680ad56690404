#pragma once
// Patch and verify. Sufficiency: the bad arm with only the guilty op made right has nothing left of the defect. Necessity: a good arm
// with only the explained fault shows it again, at the same places and with the same values.
#include <optional>
#include <string>
#include <vector>

#include "locate/explore.h"
#include "locate/relate.h"
#include "locate/verdict.h"

namespace culprit {

struct ProofRequest {
  Op op = Op::rope;
  std::vector<std::string> taps;        // globs of the guilty outputs
  const AuditedRun* bad = nullptr;      // an arm that shows the defect
  const AuditedRun* partner = nullptr;  // the other arm of a relation that the defect breaks, or nullptr
  std::vector<FaultSpec> planted;       // what `find` injected by order; removed for the good arm
  std::optional<FaultSpec> explained;   // nothing: only sufficiency is tried
  std::string right_variant;            // a variant of the op whose audit is clean, or empty
};

struct Proof {
  bool sufficient = false;
  bool undisturbed = true;  // an intervention that changes no value leaves the defect as it is
  bool necessary = false;
  std::vector<Claim> evidence;        // what was run and seen, in order
  std::optional<AuditedRun> patched;  // the bad arm with only the guilty op made right
};

[[nodiscard]] Result<Proof> prove(Session& session, const Model& model, UsedWeights& weights, const ProofRequest& request);

}  // namespace culprit
