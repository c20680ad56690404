#pragma once
// The platform's way of naming the running program.
#include <string>

namespace culprit::ref {

/// Path of the running executable; `otherwise` where the platform cannot tell.
[[nodiscard]] std::string program_path(const char* otherwise);

}  // namespace culprit::ref
