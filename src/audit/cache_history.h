#pragma once
// What a cache must hold: the values that were written to it, by what they are and not by where they lie.
#include <map>
#include <tuple>
#include <vector>

#include "tensor/coordinates.h"
#include "tensor/tensor.h"

namespace culprit {

/// The recorded inputs of one cache's writes. Rows of one sequence are told apart by their order.
class CacheHistory {
 public:
  /// Forgets everything: a fresh cache.
  void clear() { written_.clear(); }
  /// `x` [row, head, token, channel] was written at at.position; the newest value of a position counts.
  void write(const Coordinates& at, const Tensor& x);
  /// Something was written at at.position, but what is not known.
  void write_unknown(const Coordinates& at);

  struct Expected {
    Tensor values;                  // [row, kv_head, slot, channel], 0 where not known
    std::vector<bool> known;        // [row, kv_head, slot]
    std::int64_t live_unknown = 0;  // live slots [row, slot] whose source was not recorded
  };
  /// What a cache of `shape` and `dtype` must hold at the live slots of at.slot. Values of another dtype are rounded once.
  [[nodiscard]] Expected expect(const Coordinates& at, DType dtype, const Shape& shape) const;

 private:
  using Key = std::tuple<int, int, std::int64_t>;  // sequence, which of its rows, position
  struct Source {
    Tensor x;
    std::int64_t row = 0, token = 0;
  };
  std::map<Key, Source> written_;
};

}  // namespace culprit
