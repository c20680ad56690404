#pragma once
// Kinds of caches and their parameters: which tokens a cache holds. Where a kind keeps them is the engine's affair.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace culprit {

enum class CacheKind { concat, padded, rotating, sink_window, quantized };

struct CacheSpec {
  CacheKind kind = CacheKind::concat;
  std::int64_t size = 0, keep = 0;    // rotating: tokens held; the first `keep` of them are never dropped
  std::int64_t sink = 0, window = 0;  // sink_window: first and last tokens held from one step to the next
  std::int64_t bits = 0, group = 0;   // quantized: bits a channel, channels that share a scale and a bias (decode/affine_groups.h)

  /// "concat", "padded", "rotating:size=5,keep=2" XX
  [[nodiscard]] static Result<CacheSpec> parse(std::string_view text);
  [[nodiscard]] std::string text() const;
  /// Whether it holds all tokens for ever.
  [[nodiscard]] bool keeps_all() const { return kind != CacheKind::rotating && kind != CacheKind::sink_window; }
  [[nodiscard]] bool quantizes() const { return kind == CacheKind::quantized; }
};

[[nodiscard]] std::span<const std::string_view> cache_kind_names();

/// Which tokens a cache holds, by their number in the order in which they were fed.
class CacheContent {
 public:
  explicit CacheContent(CacheSpec spec) : spec_(spec) {}

  /// A fresh cache.
  void clear() { *this = CacheContent(spec_); }
  /// Feeds the next `tokens`. Attention reads read() then.
  ///   concat, padded, quantized: all.
  ///   rotating: one token takes the place of the oldest that need not be kept, when `size` are held. Several are appended to the latest
  ///     size - 1, so that each sees at least `size` tokens, its own included; to an empty cache, all. (mlx_lm, RotatingKVCache.)
  ///   sink_window: all that was held, and the new ones; after the read the first `sink` and the last `window` stay.
  void feed(std::int64_t tokens);
  /// Takes the last `tokens` back. Error id: not-supported when one of them, or one that it displaced, is no longer held: what was dropped
  /// does not come back. After a step of sink_window that dropped tokens, the last `window` may be taken back, and the cache is shorter
  /// then.
  [[nodiscard]] Result<void> take_back(std::int64_t tokens);

  /// Numbers of the tokens that attention read last, in order.
  [[nodiscard]] const std::vector<std::int64_t>& read() const { return read_; }
  /// Those that are held for the next step.
  [[nodiscard]] const std::vector<std::int64_t>& held() const { return held_; }
  [[nodiscard]] std::int64_t next() const { return next_; }

 private:
  CacheSpec spec_;
  std::vector<std::int64_t> read_, held_;
  std::int64_t next_ = 0;
};

}  // namespace culprit
