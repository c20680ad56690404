#pragma once
// Options that describe a plan, shared by the verbs that make runs.
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line.h"
#include "engine/plan.h"

namespace culprit::cli {

/// "1,2,3", or a file of numbers between blanks or commas. Error ids: tokens-invalid.
[[nodiscard]] Result<std::vector<int>> parse_tokens(const std::string& text);
/// Every --prompt. Error ids: tokens-invalid.
[[nodiscard]] Result<std::vector<std::vector<int>>> prompts_from(const Arguments& arguments);
/// Every --fault. Error ids: fault-unknown, fault-parameter.
[[nodiscard]] Result<std::vector<FaultSpec>> faults_from(const Arguments& arguments);
/// "exact:TAP", "variant:TAP:NAME", "replace:TAP:FILE", each with an optional "@STEP,STEP". Error ids: option-value.
[[nodiscard]] Result<Intervention> parse_intervention(const std::string& text);
/// "3,1,1", "incremental" or "prefill", for `length` tokens. Error ids: option-value.
[[nodiscard]] Result<std::vector<int>> parse_chunks(const std::string& text, std::size_t length);
/// "rope=composed" into `variants`. Error ids: option-value.
[[nodiscard]] Result<void> add_variant(const std::string& text, std::map<std::string, std::string>& variants);
/// Whole numbers between commas, none negative. Error ids: option-value.
[[nodiscard]] Result<std::vector<int>> parse_numbers(std::string_view option, const std::string& text);
/// "0,1/2/0,1,2": such lists between slashes. Error ids: option-value.
[[nodiscard]] Result<std::vector<std::vector<int>>> parse_number_lists(std::string_view option, const std::string& text);

}  // namespace culprit::cli
