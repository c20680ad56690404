#include "engines/kit/fixups.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/file.h"

namespace culprit::kit {

Result<void> Fixups::prepare(const Graph& graph) {
  for (const auto& intervention : plan_.interventions) {
    const auto matches = [&](const Node& node) { return glob_match(intervention.tap, node.output); };
    if (std::ranges::none_of(graph.nodes(), matches))
      return fail("tap-unknown", fmt::format("no tap of the decode graph matches '{}'", intervention.tap));
    if (intervention.kind != Intervention::Kind::replace) continue;
    CULPRIT_TRY(auto file, Safetensors::open(intervention.file));
    files_[intervention.file.string()] = std::make_shared<const Safetensors>(std::move(file));
  }
  return {};
}

const Intervention* Fixups::intervention_for(Intervention::Kind kind, const std::string& tap, int step) const {
  for (const auto& intervention : plan_.interventions) {
    if (intervention.kind != kind || !glob_match(intervention.tap, tap)) continue;
    if (intervention.steps.empty() || std::ranges::find(intervention.steps, step) != intervention.steps.end()) return &intervention;
  }
  return nullptr;
}

std::string Fixups::variant_for(const std::string& tap, int step) const {
  const auto* intervention = intervention_for(Intervention::Kind::variant, tap, step);
  return intervention == nullptr ? std::string() : intervention->variant;
}

bool Fixups::touches(const Node& node, int step) const {
  if (std::ranges::any_of(plan_.faults, [&](const FaultSpec& spec) {
        const auto* entry = find_fault(spec.id);
        return entry != nullptr && entry->can_break(spec, node);
      }))
    return true;
  using Kind = Intervention::Kind;
  return std::ranges::any_of(std::array{Kind::exact, Kind::replace, Kind::keep},
                             [&](Kind kind) { return intervention_for(kind, node.output, step) != nullptr; });
}

Result<Fixups::Fixed> Fixups::apply(OpCall& call, int step) {
  Fixed fixed;
  const auto& tap = call.node->output;
  const auto right = call.result;
  if (const auto before = previous_.find(tap); before != previous_.end()) call.previous = before->second;
  for (const auto& spec : plan_.faults) {
    CULPRIT_TRY(auto broken, apply_fault(spec, call));
    if (!broken) continue;
    if (broken->shape() != right.shape())
      return fail("internal",
                  fmt::format("{} made {} of shape {}, not {}", spec.id, tap, to_string(broken->shape()), to_string(right.shape())));
    call.result = std::move(*broken);
    fixed.note += (fixed.note.empty() ? "fault:" : ",") + spec.id;
  }
  if (intervention_for(Intervention::Kind::exact, tap, step) != nullptr) {
    std::vector<culprit::Array> inputs;
    for (const auto& input : call.inputs) inputs.push_back(to_array(input));
    CULPRIT_TRY(const auto value, evaluate_node(*call.node, inputs, call.context));
    call.result = to_tensor(value, call.dtype);
    fixed.note = "exact";
  }
  if (const auto* replace = intervention_for(Intervention::Kind::replace, tap, step); replace != nullptr) {
    const auto& file = *files_.at(replace->file.string());
    const auto at_step = fmt::format("{}@{}", tap, step);
    CULPRIT_TRY(auto tensor, file.tensor(file.contains(at_step) ? at_step : tap));
    if (tensor.shape() != right.shape())
      return fail("plan-invalid", fmt::format("replacement of {} at step {}: expected shape {}, got {}", tap, step,
                                              to_string(right.shape()), to_string(tensor.shape())));
    call.result = tensor.cast(call.dtype);
    fixed.note = "replaced";
  }
  if (intervention_for(Intervention::Kind::keep, tap, step) != nullptr) {
    call.result = call.result.contiguous();  // as what an intervention puts there is
    if (fixed.note.empty()) fixed.note = "kept";
  }
  if (!plan_.faults.empty()) previous_[tap] = call.result.copy();
  if (!fixed.note.empty()) {
    CULPRIT_TRY(fixed.output, backend_.from_host(call.result));
  }
  return fixed;
}

}  // namespace culprit::kit
