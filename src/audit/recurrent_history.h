#pragma once
// What an op with a recurrent state goes on from: the newest of what was recorded for the positions before a step.
#include <optional>

#include "audit/cache_history.h"

namespace culprit {

class RecurrentHistory {
 public:
  /// Of the last `tokens` before a step; those before `position_base`, where each row begins, are 0.
  RecurrentHistory(std::int64_t position_base, std::int64_t tokens) : position_base_(position_base), tokens_(tokens) {}

  void clear() { history_.clear(); }
  /// `values` [row, head, token, channel] belong to at.position.
  void write(const Coordinates& at, const Tensor& values) { history_.write(at, values); }
  /// Something came about at at.position, but what is not known.
  void forget(const Coordinates& at) { history_.write_unknown(at); }

  /// [row, head, tokens, channel] before the step `at`, in the dtype and with the heads and channels of `layout`; none where it is not
  /// known.
  [[nodiscard]] std::optional<Tensor> before(const Coordinates& at, const Layout& layout) const;

 private:
  CacheHistory history_;
  std::int64_t position_base_, tokens_;
};

}  // namespace culprit
