#pragma once
// The program without its process: parses, runs the verb, reports errors.
#include <string>
#include <vector>

#include "cli/context.h"

namespace culprit::cli {

/// The process's exit code. `words` are the arguments after the program's name.
[[nodiscard]] int run(const Surroundings& surroundings, const std::vector<std::string>& words);

}  // namespace culprit::cli
