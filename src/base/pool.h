#pragma once
// A worker pool for loops whose iterations are independent: results do not depend on the number of threads.
#include <cstddef>
#include <functional>

namespace culprit {

/// Calls body(begin, end) over disjoint blocks that cover [0, count), on up to `threads` threads (0: all cores). A block is `grain` long
/// (the last may be shorter) whatever the number of threads. Returns when all are done. body must not throw. Nested calls run inline.
void parallel_for(std::size_t count, std::size_t grain, const std::function<void(std::size_t begin, std::size_t end)>& body,
                  unsigned threads = 0);

}  // namespace culprit
