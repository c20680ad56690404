#include "base/version.h"

namespace culprit {

std::string_view version() { return CULPRIT_VERSION; }

}  // namespace culprit
