#include "engines/kit/kv_cache.h"

#include <limits>

namespace culprit::kit {

Result<Array> KvCache::spare(Backend& backend, Shape shape, std::int64_t slots) const {
  shape[2] = slots;
  if (!poison_) return backend.zeros(shape, dtype_);
  const std::vector<double> poison(static_cast<std::size_t>(element_count(shape)), std::numeric_limits<double>::quiet_NaN());
  return backend.from_host(Tensor::from_values(dtype_, shape, poison));
}

// The whole buffer is no view of itself: engines would read it as one.
Result<std::vector<Array>> KvCache::slices(Backend& backend, const std::vector<SlotRange>& ranges) const {
  std::vector<Array> parts;
  for (const auto& range : ranges) {
    parts.push_back(buffer_);
    if (range.begin == 0 && range.end == backend.shape(buffer_)[2]) continue;
    CULPRIT_TRY(parts.back(), backend.slice(buffer_, 2, range.begin, range.end));
  }
  return parts;
}

Result<Array> KvCache::pick(Backend& backend, const std::vector<SlotRange>& ranges) const {
  CULPRIT_TRY(const auto parts, slices(backend, ranges));
  if (parts.size() == 1) return parts[0];
  return backend.concatenate(parts, 2);
}

Result<void> KvCache::show_live(Backend& backend) {
  live_ = buffer_;
  if (length() < backend.shape(buffer_)[2]) {
    CULPRIT_TRY(live_, backend.slice(buffer_, 2, 0, length()));
  }
  return {};
}

Result<Array> KvCache::update(Backend& backend, const Array& x) {
  const auto move = layout_.append(backend.shape(x)[2]);
  CULPRIT_TRY(auto parts, slices(backend, move.kept));
  if (!move.in_place) parts.push_back(x);
  if (move.spare > 0) {
    CULPRIT_TRY(parts.emplace_back(), spare(backend, backend.shape(x), move.spare));
  }
  buffer_ = parts[0];
  if (parts.size() > 1) {
    CULPRIT_TRY(buffer_, backend.concatenate(parts, 2));
  }
  if (move.in_place) {
    CULPRIT_TRY(buffer_, backend.slice_update(buffer_, x, 2, move.write_at));
  }
  CULPRIT_CHECK(show_live(backend));
  const auto read = live_;
  read_slots_ = layout_.live_slots();
  settled_ = layout_.settle();
  if (!settled_.empty()) {
    CULPRIT_TRY(buffer_, pick(backend, settled_));
    live_ = buffer_;
  }
  return read;
}

/// One part of a gathered cache; `*this` is the cache that is being made.
Result<Array> KvCache::aligned_rows(Backend& backend, const CacheRows& part, std::int64_t live, std::int64_t capacity) const {
  auto shape = backend.shape(buffer_);
  shape[0] = part.end - part.begin;
  std::vector<Array> parts;
  const auto pad = [&](std::int64_t slots, bool dead) -> Result<void> {
    if (slots <= 0) return {};
    shape[2] = slots;
    if (dead) {
      CULPRIT_TRY(parts.emplace_back(), spare(backend, shape, slots));
    } else {
      CULPRIT_TRY(parts.emplace_back(), backend.zeros(shape, dtype_));
    }
    return {};
  };
  const auto length = part.cache == nullptr ? 0 : part.cache->length();
  CULPRIT_CHECK(pad(live - length, false));
  std::int64_t held = live;
  if (part.cache != nullptr) {
    auto rows = part.cache->buffer_;
    if (shape[0] < backend.shape(rows)[0]) {
      CULPRIT_TRY(rows, backend.slice(rows, 0, part.begin, part.end));
    }
    const auto slots = part.cache->capacity();
    if (length > live) {
      CULPRIT_TRY(rows, backend.slice(rows, 2, length - live, slots));
    }
    parts.push_back(rows);
    held = live - length + slots;
  }
  CULPRIT_CHECK(pad(capacity - held, true));
  if (parts.size() == 1) return parts[0];
  return backend.concatenate(parts, 2);
}

Result<KvCache> KvCache::gathered(Backend& backend, const KvCache& like, std::span<const CacheRows> parts, std::int64_t live,
                                  std::int64_t capacity) {
  KvCache made(like.layout_.spec(), like.dtype_, like.poison_);
  made.layout_ = CacheLayout::filled(like.layout_.spec(), live, capacity);
  made.buffer_ = like.buffer_;
  std::vector<Array> rows;
  for (const auto& part : parts) {
    CULPRIT_TRY(rows.emplace_back(), made.aligned_rows(backend, part, live, capacity));
  }
  made.buffer_ = rows[0];
  if (rows.size() > 1) {
    CULPRIT_TRY(made.buffer_, backend.concatenate(rows, 0));
  }
  CULPRIT_CHECK(made.show_live(backend));
  return made;
}

Result<void> KvCache::overwrite(Backend& backend, const Array& read) {
  if (!settled_.empty()) {
    buffer_ = read;
    CULPRIT_TRY(buffer_, pick(backend, settled_));
    live_ = buffer_;
    return {};
  }
  if (capacity() == length()) {
    buffer_ = live_ = read;
    return {};
  }
  CULPRIT_TRY(buffer_, backend.slice_update(buffer_, read, 2, 0));
  return show_live(backend);
}

Result<void> KvCache::trim(Backend& backend, std::int64_t tokens) {
  if (tokens == 0) return {};
  CULPRIT_CHECK(layout_.trim(tokens));
  if (capacity() < backend.shape(buffer_)[2]) {
    CULPRIT_TRY(buffer_, backend.slice(buffer_, 2, 0, capacity()));
  }
  if (poison_ && length() < capacity()) {
    CULPRIT_TRY(const auto dead, spare(backend, backend.shape(buffer_), tokens));
    CULPRIT_TRY(buffer_, backend.slice_update(buffer_, dead, 2, length()));
  }
  return show_live(backend);
}

}  // namespace culprit::kit
