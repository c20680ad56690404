#include "audit/cache_history.h"

#include <cstring>

namespace culprit {
namespace {

// For each row, how many rows before it hold the same sequence.
std::vector<int> copies_of(const std::vector<int>& sequence) {
  std::map<int, int> seen;
  std::vector<int> copies;
  for (const int id : sequence) copies.push_back(seen[id]++);
  return copies;
}

}  // namespace

void CacheHistory::write(const Coordinates& at, const Tensor& x) {
  const auto copies = copies_of(at.sequence);
  const Tensor values = x.contiguous();
  for (std::size_t row = 0; row < at.position.size(); ++row)
    for (std::size_t token = 0; token < at.position[row].size(); ++token)
      written_[{at.sequence[row], copies[row], at.position[row][token]}] = {values, static_cast<std::int64_t>(row),
                                                                            static_cast<std::int64_t>(token)};
}

void CacheHistory::write_unknown(const Coordinates& at) {
  const auto copies = copies_of(at.sequence);
  for (std::size_t row = 0; row < at.position.size(); ++row)
    for (const auto position : at.position[row]) written_.erase({at.sequence[row], copies[row], position});
}

CacheHistory::Expected CacheHistory::expect(const Coordinates& at, DType dtype, const Shape& shape) const {
  const auto copies = copies_of(at.sequence);
  const std::int64_t heads = shape[1], slots = shape[2], channels = shape[3];
  Expected expected{Tensor::zeros(dtype, shape), std::vector<bool>(static_cast<std::size_t>(shape[0] * heads * slots), false)};
  const auto out = expected.values.mutable_bytes();
  const auto row_bytes = static_cast<std::size_t>(channels) * size_of(dtype);
  for (std::size_t row = 0; row < at.slot.size(); ++row)
    for (std::size_t slot = 0; slot < at.slot[row].size(); ++slot) {
      if (at.slot[row][slot] < 0) continue;
      const auto found = written_.find({at.sequence[row], copies[row], at.slot[row][slot]});
      if (found == written_.end() || found->second.x.dim(1) != heads || found->second.x.dim(3) != channels) {
        expected.live_unknown += 1;
        continue;
      }
      const auto& source = found->second;
      const auto from = source.x.contiguous_bytes();
      for (std::int64_t head = 0; head < heads; ++head) {
        const auto vector = static_cast<std::size_t>((static_cast<std::int64_t>(row) * heads + head) * slots) + slot;
        const auto begin =
            static_cast<std::size_t>(((source.row * heads + head) * source.x.dim(2) + source.token) * channels) * size_of(source.x.dtype());
        expected.known[vector] = true;
        if (source.x.dtype() == dtype) {
          std::memcpy(out.data() + vector * row_bytes, from.data() + begin, row_bytes);
          continue;
        }
        for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c)
          store(dtype, out.data() + vector * row_bytes + c * size_of(dtype),
                load(source.x.dtype(), from.data() + begin + c * size_of(source.x.dtype())));
      }
    }
  return expected;
}

}  // namespace culprit
