#include "engines/kit/attention_mask.h"

#include <algorithm>

#include "decode/ops.h"

namespace culprit::kit {

Result<Array> attention_mask(Backend& backend, const Coordinates& at, int window) {
  const auto rows = static_cast<std::size_t>(at.rows()), tokens = static_cast<std::size_t>(at.tokens());
  if (rows == 0 || tokens == 0) return Array();
  const auto slots = at.slot[0].size();
  const auto visible = visible_slots(at, window);
  bool plain = true;
  for (std::size_t i = 0; i < visible.size(); ++i) plain = plain && (visible[i] != 0) == (i % slots + tokens <= slots + i / slots % tokens);
  if (plain) return Array();
  const auto row_size = tokens * slots;
  bool same = true;
  for (std::size_t row = 1; row < rows; ++row)
    same = same && std::equal(visible.begin(), visible.begin() + static_cast<std::ptrdiff_t>(row_size),
                              visible.begin() + static_cast<std::ptrdiff_t>(row * row_size));
  const auto mask_rows = same ? 1 : rows;
  const std::vector<double> values(visible.begin(), visible.begin() + static_cast<std::ptrdiff_t>(mask_rows * row_size));
  return backend.from_host(Tensor::from_values(
      DType::boolean, {static_cast<std::int64_t>(mask_rows), static_cast<std::int64_t>(tokens), static_cast<std::int64_t>(slots)}, values));
}

}  // namespace culprit::kit
