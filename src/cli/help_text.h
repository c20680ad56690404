#pragma once
// Help and reference pages, from the verb table.
#include <span>
#include <string>

#include "cli/command_line.h"

namespace culprit::cli {

/// "culprit find MODEL --engine SPEC [OPTION..]"
[[nodiscard]] std::string usage_of(const Verb& verb);
[[nodiscard]] std::string help_of(const Verb& verb);
/// All verbs, a line each.
[[nodiscard]] std::string overview(std::span<const Verb* const> verbs);
/// docs/verbs.md
[[nodiscard]] std::string verbs_page(std::span<const Verb* const> verbs);
/// docs/errors.md
[[nodiscard]] std::string errors_page();

}  // namespace culprit::cli
