#pragma once
// Logical coordinates: which sequence each row is, and which absolute position each token or cache slot is.
#include <cstdint>
#include <vector>

namespace culprit {

struct Coordinates {
  std::vector<int> sequence;                        // per row
  std::vector<std::vector<std::int64_t>> position;  // [row][token] of the tokens fed at this step
  std::vector<std::vector<std::int64_t>> slot;      // [row][slot] of the cache after this step's write; -1 is a dead slot

  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(sequence.size()); }
  [[nodiscard]] std::int64_t tokens() const { return position.empty() ? 0 : static_cast<std::int64_t>(position[0].size()); }
};

}  // namespace culprit
