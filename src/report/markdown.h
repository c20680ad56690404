#pragma once
// The root-cause record: an issue text that a maintainer can act on.
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace culprit {

/// Markdown of a document of `find --json`: what is wrong, where, the smallest condition, the evidence with its runs, numbers, the environment
/// with its hashes, and the command that shows it again. Conclusions that do not follow from the document's runs are marked as such.
/// Error ids: verdict-invalid.
[[nodiscard]] Result<std::string> markdown_of(const Json& verdict);

}  // namespace culprit
