#pragma once
// A key or value cache of one layer, on the engine's own arrays [row, kv_head, slot, channel].
#include "engines/kit/backend.h"

namespace culprit::kit {

enum class CacheKind { concat, padded };
[[nodiscard]] Result<CacheKind> parse_cache_kind(const std::string& name);

class KvCache {
 public:
  KvCache(CacheKind kind, DType dtype) : kind_(kind), dtype_(dtype) {}

  /// Appends x [row, kv_head, token, channel] and returns the live view, all slots written so far.
  /// concat: the live slots and x, concatenated. padded: a buffer that grows by multiples of 256 slots; the first update is stored as it
  /// is, a later one that does not fit makes a buffer of the live prefix, x, and zeros; one that fits is written in place.
  [[nodiscard]] Result<Array> update(Backend& backend, const Array& x);
  /// Makes `live` the content of the live slots.
  [[nodiscard]] Result<void> overwrite(Backend& backend, const Array& live);
  /// The live view before the next update; nullptr when empty.
  [[nodiscard]] const Array& live() const { return live_; }
  [[nodiscard]] std::int64_t length() const { return length_; }
  [[nodiscard]] std::int64_t capacity() const { return capacity_; }

 private:
  static constexpr std::int64_t kStep = 256;  // slots
  CacheKind kind_;
  DType dtype_;
  Array buffer_;
  Array live_;
  std::int64_t length_ = 0;
  std::int64_t capacity_ = 0;
};

}  // namespace culprit::kit
