#pragma once
// A verdict as text. Who reads only the first five lines knows what is broken, where, and how sure it is.
#include <string>

#include "locate/verdict.h"

namespace culprit {

struct TextOptions {
  bool colour = false;
  bool explain = false;  // also: why each experiment was chosen
};

[[nodiscard]] std::string to_text(const Verdict& verdict, const TextOptions& options = {});

}  // namespace culprit
