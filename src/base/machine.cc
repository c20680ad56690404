#include "base/machine.h"

#include <unistd.h>

namespace culprit {

std::int64_t physical_memory_bytes() {
  const auto pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? static_cast<std::int64_t>(pages) * page_bytes : 0;
}

}  // namespace culprit
