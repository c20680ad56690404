#pragma once
// A key or value cache of one layer, on the engine's own arrays [row, kv_head, slot, channel].
#include <map>

#include "engines/kit/backend.h"
#include "engines/kit/cache_layout.h"

namespace culprit::kit {

class KvCache;
/// Rows [begin, end) of a cache; of none, when nothing was written for them yet.
struct CacheRows {
  const KvCache* cache = nullptr;
  std::int64_t begin = 0, end = 0;
};

class KvCache {
 public:
  /// `poison`: spare slots hold NaN instead of 0; of a quantised cache, their scales and biases do.
  KvCache(CacheSpec spec, DType dtype, bool poison = false) : spec_(spec), layout_(spec), dtype_(dtype), poison_(poison) {}

  /// Takes x [row, kv_head, token, channel] in and returns what attention reads: slots() says which tokens these are.
  /// concat: the live slots and x, concatenated. padded: a buffer that grows by multiples of 256 slots; the first update is stored as it
  /// is, a later one that does not fit makes a buffer of the live prefix, x, and zeros; one that fits is written in place. rotating: several
  /// tokens are concatenated to the ring in order of time, one is written in place. sink_window: all that is stored and x; what is stored
  /// after that is cut to sinks and window. quantized: three buffers (packed words, scales, biases) of x as the engine quantises it, which
  /// grow as padded does, the first one too; attention reads the dequantised slots, the new ones included.
  [[nodiscard]] Result<Array> update(Backend& backend, const Array& x);
  /// A concat or padded cache made of rows of others, at least one of which holds something, in this order: `live` slots, at whose right end
  /// each row's tokens are, in a buffer of `capacity`. What is short is padded on the left with zeros; what is long is cut on the left. Spare
  /// slots go along. mlx_lm's BatchKVCache does so when rows join (extend, merge) and leave (filter).
  [[nodiscard]] static Result<KvCache> gathered(Backend& backend, const KvCache& like, std::span<const CacheRows> parts, std::int64_t live,
                                                std::int64_t capacity);
  /// Makes `read` what the last update returned, and what later ones show of it. quantized: the slots that differ are kept beside the buffers,
  /// since to quantise what was dequantised does not give it back.
  [[nodiscard]] Result<void> overwrite(Backend& backend, const Array& read);
  /// Takes the last `tokens` back. Error id: not-supported where tokens that were dropped would have to come back.
  [[nodiscard]] Result<void> trim(Backend& backend, std::int64_t tokens);
  /// Copies what is live to the host, as it is stored, drops the buffers, and makes new ones of the copy, without spare slots: what saving and
  /// loading a prompt cache does.
  [[nodiscard]] Result<void> restore(Backend& backend);

  /// What is stored, before the next update, as attention reads it; nullptr when empty. stored_slots() says which tokens these are.
  [[nodiscard]] const Array& live() const { return live_; }
  [[nodiscard]] std::vector<std::int64_t> stored_slots() const { return layout_.live_slots(); }
  /// Numbers, in the order of feeding, of the tokens that the last update returned.
  [[nodiscard]] const std::vector<std::int64_t>& slots() const { return read_slots_; }
  [[nodiscard]] const CacheLayout& layout() const { return layout_; }
  [[nodiscard]] std::int64_t length() const { return layout_.live(); }
  [[nodiscard]] std::int64_t capacity() const { return static_cast<std::int64_t>(layout_.slots().size()); }

 private:
  using Planes = std::vector<Array>;  // of one buffer: the values, or packed words, scales and biases
  [[nodiscard]] Result<Array> aligned_rows(Backend& backend, const CacheRows& part, std::int64_t live, std::int64_t capacity) const;

  [[nodiscard]] Result<Planes> stored_form(Backend& backend, const Array& x) const;
  [[nodiscard]] Result<Array> values_of(Backend& backend, const Planes& planes) const;
  [[nodiscard]] Result<Array> spare(Backend& backend, Shape shape, DType dtype, std::int64_t slots) const;
  [[nodiscard]] Result<Array> moved(Backend& backend, std::size_t plane, const Array& x, const CacheMove& move) const;
  [[nodiscard]] Result<std::vector<Array>> slices(Backend& backend, const Array& plane, const std::vector<SlotRange>& ranges) const;
  [[nodiscard]] Result<Array> pick(Backend& backend, const std::vector<SlotRange>& ranges) const;
  [[nodiscard]] Result<Planes> live_planes(Backend& backend) const;
  [[nodiscard]] Result<void> show_live(Backend& backend);
  [[nodiscard]] Result<void> keep_differing_slots(Backend& backend, const Array& read);
  /// Of a plane: words are integers.
  [[nodiscard]] DType dtype_of(std::size_t plane) const { return spec_.quantizes() && plane == 0 ? DType::u32 : dtype_; }

  CacheSpec spec_;
  CacheLayout layout_;
  DType dtype_;
  bool poison_;
  Planes buffer_;
  std::map<std::int64_t, Array> overwritten_;  // quantized: values of slots
  Array live_;
  std::vector<std::int64_t> read_slots_;
  std::vector<SlotRange> settled_;  // of what the last update returned: what stayed; empty: all
};

}  // namespace culprit::kit
