#pragma once
// Scans of a condition on the op alone: settings that the arms hold fixed are varied in model-free op requests, everything else as
// recorded.
#include <string>
#include <vector>

#include "locate/explore.h"

namespace culprit {

struct OpScan {
  bool tried = false;     // the op alone is wrong in the run's dtype, so the condition below is known
  std::string condition;  // "dtype bf16 or f16 and position >= 3"; empty: in every dtype and at every position
  std::vector<std::string> notes;
};

/// RoPE: the smallest position at which a single token goes wrong, in the run's dtype and in the other float dtypes.
[[nodiscard]] Result<OpScan> scan_rope(Session& session, const Model& model, const Exploration& exploration,
                                       const std::vector<FaultSpec>& planted, DType dtype);

}  // namespace culprit
