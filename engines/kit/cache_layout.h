#pragma once
// Where a cache keeps its tokens: slots, by the number of the token that each holds. Arrays are moved by KvCache.
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "decode/cache_spec.h"

namespace culprit::kit {

struct SlotRange {
  std::int64_t begin = 0, end = 0;
};

/// How an update makes the new buffer of the old one: the slots `kept`, in this order, then the new tokens, then `spare` dead slots; or,
/// in place, `kept`, `spare`, and the new tokens written from slot `write_at` on.
struct CacheMove {
  std::vector<SlotRange> kept;
  std::int64_t spare = 0;
  bool in_place = false;
  std::int64_t write_at = 0;
};

class CacheLayout {
 public:
  explicit CacheLayout(CacheSpec spec) : spec_(spec) {}
  /// Of a buffer of `capacity` slots whose first `live` hold tokens 0, 1, ..
  [[nodiscard]] static CacheLayout filled(CacheSpec spec, std::int64_t live, std::int64_t capacity);

  /// Makes room for the next `tokens`.
  CacheMove append(std::int64_t tokens);
  /// What stays after the read, as slots of the buffer; empty when all does.
  std::vector<SlotRange> settle();
  /// Forgets the last `tokens`: dead slots from live() on. Error id: not-supported.
  [[nodiscard]] Result<void> trim(std::int64_t tokens);
  /// Gives up the dead slots behind the live ones.
  void drop_room() { slots_.resize(static_cast<std::size_t>(live_)); }

  /// Token number of each slot of the buffer; -1 is dead.
  [[nodiscard]] const std::vector<std::int64_t>& slots() const { return slots_; }
  /// How many of them, from the first on, attention reads.
  [[nodiscard]] std::int64_t live() const { return live_; }
  [[nodiscard]] std::vector<std::int64_t> live_slots() const { return {slots_.begin(), slots_.begin() + live_}; }
  [[nodiscard]] std::int64_t next() const { return next_; }
  [[nodiscard]] const CacheSpec& spec() const { return spec_; }

 private:
  static constexpr std::int64_t kStep = 256;  // slots

  [[nodiscard]] std::int64_t capacity() const { return static_cast<std::int64_t>(slots_.size()); }
  /// Grows by whole steps, and is written in place as long as there is room.
  [[nodiscard]] bool has_steps() const { return spec_.kind == CacheKind::padded || spec_.kind == CacheKind::quantized; }
  void keep(const std::vector<std::int64_t>& slots, CacheMove& move);
  void rotate_one(CacheMove& move);
  void append_in_order(std::int64_t tokens, CacheMove& move);

  CacheSpec spec_;
  std::vector<std::int64_t> slots_;
  std::int64_t live_ = 0, next_ = 0;
  std::int64_t write_ = 0;  // rotating: the slot of the next token
};

/// Indices as ranges, in order.
[[nodiscard]] std::vector<SlotRange> ranges_of(const std::vector<std::int64_t>& slots);

}  // namespace culprit::kit
