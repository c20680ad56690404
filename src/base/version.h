#pragma once
// culprit's own version, from the build.
#include <string_view>

namespace culprit {

/// "0.1.0"
[[nodiscard]] std::string_view version();

}  // namespace culprit
