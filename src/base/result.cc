#include "base/result.h"

#include <fmt/format.h>

namespace culprit {

std::string to_string(const Error& error) {
  if (error.where.empty()) return fmt::format("error[{}]: {}", error.id, error.message);
  return fmt::format("error[{}]: {}: {}", error.id, error.where, error.message);
}

}  // namespace culprit
