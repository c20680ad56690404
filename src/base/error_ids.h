#pragma once
// The one table of error ids: it documents them (docs/errors.md is generated from it) and gives each its exit code.
#include <span>
#include <string_view>

namespace culprit {

struct ErrorId {
  std::string_view id;
  int exit_code;  // 2 usage or input, 3 inconclusive, 4 internal or engine failure, 130 interrupted
  std::string_view description;
};

[[nodiscard]] std::span<const ErrorId> error_ids();
/// Exit code of `id`; 4 for an id that is not in the table.
[[nodiscard]] int exit_code_of(std::string_view id);

}  // namespace culprit
