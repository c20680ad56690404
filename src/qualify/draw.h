#pragma once
// The cases of a campaign: what is planted, into which model, in which dtype and cache. A case follows from the campaign's seed and its own
// name alone, so it is the same however many others there are.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "decode/cache_spec.h"
#include "decode/facts.h"
#include "fault/fault.h"
#include "num/dtype.h"

namespace culprit {

/// What a null has that is legal and looks suspicious.
enum class NullKind {
  plain,
  near_ties,     // pairs of tokens whose logits differ by little or nothing
  equal_tokens,  // every prompt is one token, again and again
  large_weights  // matrices four times as large: softmax saturates, activations and logits are large
};
[[nodiscard]] std::string_view name_of(NullKind kind);

struct QualifyCase {
  std::string name;        // "12", "null-3"
  std::uint64_t seed = 1;  // of the weights and the prompts
  Facts facts;
  DType dtype = DType::f32;
  CacheSpec cache;
  int bits = 0;                   // of packed weights, in an MLX folder; 0: dense
  std::vector<FaultSpec> faults;  // one; two for some; none for a null
  NullKind null_kind = NullKind::plain;
  std::vector<std::vector<int>> prompts;  // empty: those of find's seed

  [[nodiscard]] bool is_null() const { return faults.empty(); }
};

[[nodiscard]] std::string fault_case_name(int number);  // from 1
[[nodiscard]] std::string null_case_name(int number);
/// The case of that name. Each fault of the catalogue is as likely as any other, and so is each value of each parameter; the tap is all, one
/// layer, one role, or one of both. One case in ten has two faults, on different ops. `attempt`: which draw of this name; a fault that changes
/// nothing in any run of its model is no case, and is drawn again (run_case). Error ids: option-value when the name is none of a case.
[[nodiscard]] Result<QualifyCase> draw_case(std::uint64_t campaign_seed, const std::string& name, int attempt = 0);

/// Writes the case's model as a folder that Model::open reads. Error ids: file-write.
[[nodiscard]] Result<void> write_case_model(const QualifyCase& drawn, const std::filesystem::path& folder);

/// XXH3-128 of all that cases are drawn from: the faults with their ops and parameters, and the architectures.
[[nodiscard]] std::string catalogue_hash();

}  // namespace culprit
