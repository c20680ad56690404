#pragma once
// The audit of loaded weights: what an engine's own loader holds against the checkpoint, tensor by tensor, and which loader fault explains
// it.
#include <string>
#include <vector>

#include "decode/model.h"
#include "locate/session.h"

namespace culprit {

/// A way in which a loader can misread a checkpoint: an injection (culprit's own reader with that fault) and so a prediction.
struct LoaderFault {
  std::string_view spec;         // "F17:q4_1_nibbles=2"
  std::string_view source_type;  // block type that it breaks
  std::string_view title;
  std::string_view mechanism;
  GgufReadFault fault;
};
[[nodiscard]] std::span<const LoaderFault> loader_faults();

struct WeightsCheck {
  int tensors = 0;                 // compared
  std::vector<std::string> wrong;  // canonical names
  std::string wrong_types;         // "210 of 210 Q4_1"
  std::string wrong_kinds;         // "Q4_1"
  double error_max = 0;            // largest |loaded - right|; known only with an explanation
  std::string error_where;         // tensor
  const LoaderFault* explained = nullptr;
  int predicted = 0;                  // wrong tensors that the fault predicts bit for bit
  std::vector<std::string> rejected;  // other loader faults, with how many tensors they predict
};

/// The session must have loaded with WeightSource::engine.
[[nodiscard]] Result<WeightsCheck> check_weights(Session& session, const Model& model);

}  // namespace culprit
