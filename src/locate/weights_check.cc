#include "locate/weights_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>

namespace culprit {

std::span<const LoaderFault> loader_faults() {
  static constexpr LoaderFault kFaults[] = {
      {"F17:q4_1_nibbles=2", "Q4_1", "Q4_1 tensors are read two bytes off",
       "the 16 bytes of nibbles are read from byte 2 of the 20-byte block, which holds the minimum, instead of byte 4; scales and minima "
       "are right",
       GgufReadFault{.q4_1_nibble_offset = 2}},
      {"F17:q4_1_nibbles=0", "Q4_1", "Q4_1 tensors are read four bytes off",
       "the 16 bytes of nibbles are read from the begin of the block, scale and minimum included, instead of byte 4",
       GgufReadFault{.q4_1_nibble_offset = 0}},
  };
  return kFaults;
}

namespace {

struct LargestError {
  double value = 0;
  std::string where;
};

Result<LargestError> largest_error(const Model& model, const std::vector<std::string>& names, const GgufReadFault& fault) {
  LargestError largest;
  for (const auto& name : names) {
    CULPRIT_TRY(const auto right, model.weight(name));
    CULPRIT_TRY(const auto wrong, model.weight(name, fault));
    const auto expected = right.to_f32(), actual = wrong.to_f32();
    const auto* x = reinterpret_cast<const float*>(expected.contiguous_bytes().data());
    const auto* y = reinterpret_cast<const float*>(actual.contiguous_bytes().data());
    double tensor_max = 0;
    for (std::int64_t i = 0; i < expected.count(); ++i) {
      const double error = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
      if (!(error <= tensor_max)) tensor_max = error;
    }
    if (!(tensor_max <= largest.value)) largest = {tensor_max, name};
  }
  return largest;
}

}  // namespace

Result<WeightsCheck> check_weights(Session& session, const Model& model) {
  CULPRIT_TRY(const auto loaded, session.weights());
  WeightsCheck check;
  std::map<std::string, std::string> hashes;
  std::map<std::string, std::pair<int, int>> by_type;  // wrong, all
  for (const auto& weight : loaded) hashes[weight.name] = weight.hash;
  for (const auto& name : model.weight_names()) {
    CULPRIT_TRY(const auto right, model.weight(name));
    ++check.tensors;
    auto& [wrong, all] = by_type[right.source_type];
    ++all;
    const auto found = hashes.find(name);
    if (found != hashes.end() && found->second == right.hash_f32()) continue;
    ++wrong;
    check.wrong.push_back(name);
  }
  std::vector<std::string> types, kinds;
  for (const auto& [type, counts] : by_type) {
    if (counts.first == 0) continue;
    types.push_back(fmt::format("{} of {} {}", counts.first, counts.second, type));
    kinds.push_back(type);
  }
  check.wrong_types = fmt::format("{}", fmt::join(types, ", "));
  check.wrong_kinds = fmt::format("{}", fmt::join(kinds, ", "));
  if (check.wrong.empty()) return check;

  for (const auto& fault : loader_faults()) {
    int predicted = 0;
    for (const auto& name : check.wrong) {
      CULPRIT_TRY(const auto faulty, model.weight(name, fault.fault));
      if (faulty.source_type != fault.source_type) continue;
      const auto found = hashes.find(name);
      predicted += found != hashes.end() && found->second == faulty.hash_f32();
    }
    if (predicted == static_cast<int>(check.wrong.size())) {
      check.explained = &fault;
      check.predicted = predicted;
    } else {
      check.rejected.push_back(fmt::format("{}: predicts {} of {} wrong tensors", fault.spec, predicted, check.wrong.size()));
    }
  }
  if (check.explained != nullptr) {
    CULPRIT_TRY(const auto largest, largest_error(model, check.wrong, check.explained->fault));
    check.error_max = largest.value;
    check.error_where = model.checkpoint_name(largest.where);
  }
  return check;
}

}  // namespace culprit
