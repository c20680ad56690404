#pragma once
// What a plan does to the output of an op after the engine computed it: planted faults, then interventions. An intervention wins.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/plan.h"
#include "engines/kit/backend.h"
#include "fault/fault.h"
#include "format/safetensors.h"

namespace culprit::kit {

class Fixups {
 public:
  Fixups(Backend& backend, const RunPlan& plan) : backend_(backend), plan_(plan) {}

  /// Opens the files of `replace` interventions. Error ids: tap-unknown when a glob matches no node; those of the reader.
  [[nodiscard]] Result<void> prepare(const Graph& graph);
  /// The variant that an intervention asks for at this tap and step, or empty.
  [[nodiscard]] std::string variant_for(const std::string& tap, int step) const;
  /// Whether `node` may be touched at `step`: then the call has to be brought to the host.
  [[nodiscard]] bool touches(const Node& node, int step) const;

  struct Fixed {
    Array output;      // nullptr: unchanged
    std::string note;  // for the trace
  };
  /// `call.result` is the engine's output; inputs and context are complete.
  [[nodiscard]] Result<Fixed> apply(OpCall& call, int step);

 private:
  [[nodiscard]] const Intervention* intervention_for(Intervention::Kind kind, const std::string& tap, int step) const;
  Backend& backend_;
  const RunPlan& plan_;
  std::map<std::string, std::shared_ptr<const Safetensors>> files_;
  std::map<std::string, Tensor> previous_;  // by tap, of the step before, where faults may need it
};

}  // namespace culprit::kit
