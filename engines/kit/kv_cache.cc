#include "engines/kit/kv_cache.h"

#include <limits>

namespace culprit::kit {

Result<KvCache::Planes> KvCache::stored_form(Backend& backend, const Array& x) const {
  if (!spec_.quantizes()) return Planes{x};
  return backend.quantise(x, static_cast<int>(spec_.bits), static_cast<int>(spec_.group));
}

Result<Array> KvCache::values_of(Backend& backend, const Planes& planes) const {
  if (!spec_.quantizes()) return planes[0];
  return backend.dequantise(planes, static_cast<int>(spec_.bits), static_cast<int>(spec_.group));
}

Result<Array> KvCache::spare(Backend& backend, Shape shape, DType dtype, std::int64_t slots) const {
  shape[2] = slots;
  if (!poison_ || !is_float(dtype)) return backend.zeros(shape, dtype);
  const std::vector<double> poison(static_cast<std::size_t>(element_count(shape)), std::numeric_limits<double>::quiet_NaN());
  return backend.from_host(Tensor::from_values(dtype, shape, poison));
}

// The whole buffer is no view of itself: engines would read it as one.
Result<std::vector<Array>> KvCache::slices(Backend& backend, const Array& plane, const std::vector<SlotRange>& ranges) const {
  std::vector<Array> parts;
  for (const auto& range : ranges) {
    parts.push_back(plane);
    if (range.begin == 0 && range.end == backend.shape(plane)[2]) continue;
    CULPRIT_TRY(parts.back(), backend.slice(plane, 2, range.begin, range.end));
  }
  return parts;
}

// Only caches of one plane drop what they have read.
Result<Array> KvCache::pick(Backend& backend, const std::vector<SlotRange>& ranges) const {
  CULPRIT_TRY(const auto parts, slices(backend, buffer_[0], ranges));
  if (parts.size() == 1) return parts[0];
  return backend.concatenate(parts, 2);
}

Result<KvCache::Planes> KvCache::live_planes(Backend& backend) const {
  Planes planes = buffer_;
  for (auto& plane : planes)
    if (length() < backend.shape(plane)[2]) {
      CULPRIT_TRY(plane, backend.slice(plane, 2, 0, length()));
    }
  return planes;
}

Result<void> KvCache::show_live(Backend& backend) {
  CULPRIT_TRY(const auto planes, live_planes(backend));
  CULPRIT_TRY(live_, values_of(backend, planes));
  for (const auto& [slot, values] : overwritten_) {
    CULPRIT_TRY(live_, backend.slice_update(live_, values, 2, slot));
  }
  return {};
}

/// The buffer of a plane after `move`, x being that plane of the new tokens.
Result<Array> KvCache::moved(Backend& backend, std::size_t plane, const Array& x, const CacheMove& move) const {
  std::vector<Array> parts;
  if (!move.kept.empty()) {
    CULPRIT_TRY(parts, slices(backend, buffer_[plane], move.kept));
  }
  if (!move.in_place) parts.push_back(x);
  if (move.spare > 0) {
    CULPRIT_TRY(parts.emplace_back(), spare(backend, backend.shape(x), dtype_of(plane), move.spare));
  }
  auto buffer = parts[0];
  if (parts.size() > 1) {
    CULPRIT_TRY(buffer, backend.concatenate(parts, 2));
  }
  if (move.in_place) {
    CULPRIT_TRY(buffer, backend.slice_update(buffer, x, 2, move.write_at));
  }
  return buffer;
}

Result<Array> KvCache::update(Backend& backend, const Array& x) {
  const auto move = layout_.append(backend.shape(x)[2]);
  CULPRIT_TRY(const auto planes, stored_form(backend, x));
  buffer_.resize(planes.size());
  for (std::size_t plane = 0; plane < planes.size(); ++plane) {
    CULPRIT_TRY(buffer_[plane], moved(backend, plane, planes[plane], move));
  }
  CULPRIT_CHECK(show_live(backend));
  const auto read = live_;
  read_slots_ = layout_.live_slots();
  settled_ = layout_.settle();
  if (!settled_.empty()) {
    CULPRIT_TRY(buffer_[0], pick(backend, settled_));
    live_ = buffer_[0];
  }
  return read;
}

/// One part of a gathered cache; `*this` is the cache that is being made.
Result<Array> KvCache::aligned_rows(Backend& backend, const CacheRows& part, std::int64_t live, std::int64_t capacity) const {
  auto shape = backend.shape(buffer_[0]);
  shape[0] = part.end - part.begin;
  std::vector<Array> parts;
  const auto pad = [&](std::int64_t slots, bool dead) -> Result<void> {
    if (slots <= 0) return {};
    shape[2] = slots;
    if (dead) {
      CULPRIT_TRY(parts.emplace_back(), spare(backend, shape, dtype_, slots));
    } else {
      CULPRIT_TRY(parts.emplace_back(), backend.zeros(shape, dtype_));
    }
    return {};
  };
  const auto length = part.cache == nullptr ? 0 : part.cache->length();
  CULPRIT_CHECK(pad(live - length, false));
  std::int64_t held = live;
  if (part.cache != nullptr) {
    auto rows = part.cache->buffer_[0];
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
  KvCache made(like.spec_, like.dtype_, like.poison_);
  made.layout_ = CacheLayout::filled(like.spec_, live, capacity);
  made.buffer_ = like.buffer_;
  std::vector<Array> rows;
  for (const auto& part : parts) {
    CULPRIT_TRY(rows.emplace_back(), made.aligned_rows(backend, part, live, capacity));
  }
  made.buffer_ = {rows[0]};
  if (rows.size() > 1) {
    CULPRIT_TRY(made.buffer_[0], backend.concatenate(rows, 0));
  }
  CULPRIT_CHECK(made.show_live(backend));
  return made;
}

Result<void> KvCache::overwrite(Backend& backend, const Array& read) {
  if (spec_.quantizes()) return keep_differing_slots(backend, read);
  if (!settled_.empty()) {
    buffer_[0] = read;
    CULPRIT_TRY(buffer_[0], pick(backend, settled_));
    live_ = buffer_[0];
    return {};
  }
  if (capacity() == length()) {
    buffer_[0] = live_ = read;
    return {};
  }
  CULPRIT_TRY(buffer_[0], backend.slice_update(buffer_[0], read, 2, 0));
  return show_live(backend);
}

Result<void> KvCache::keep_differing_slots(Backend& backend, const Array& read) {
  CULPRIT_TRY(const auto before, backend.to_host(live_));
  CULPRIT_TRY(const auto after, backend.to_host(read));
  for (std::int64_t slot = 0; slot < length(); ++slot) {
    if (before.sliced(2, slot, slot + 1).values() == after.sliced(2, slot, slot + 1).values()) continue;
    CULPRIT_TRY(overwritten_[slot], backend.slice(read, 2, slot, slot + 1));
  }
  return show_live(backend);
}

Result<void> KvCache::trim(Backend& backend, std::int64_t tokens) {
  if (tokens == 0) return {};
  CULPRIT_CHECK(layout_.trim(tokens));
  overwritten_.erase(overwritten_.lower_bound(length()), overwritten_.end());
  for (std::size_t plane = 0; plane < buffer_.size(); ++plane) {
    if (capacity() < backend.shape(buffer_[plane])[2]) {
      CULPRIT_TRY(buffer_[plane], backend.slice(buffer_[plane], 2, 0, capacity()));
    }
    if (poison_ && length() < capacity()) {
      CULPRIT_TRY(const auto dead, spare(backend, backend.shape(buffer_[plane]), dtype_of(plane), tokens));
      CULPRIT_TRY(buffer_[plane], backend.slice_update(buffer_[plane], dead, 2, length()));
    }
  }
  return show_live(backend);
}

Result<void> KvCache::restore(Backend& backend) {
  if (buffer_.empty()) return {};
  CULPRIT_TRY(auto planes, live_planes(backend));
  std::vector<Tensor> copies;
  for (const auto& plane : planes) {
    CULPRIT_TRY(const auto host, backend.to_host(plane));
    copies.push_back(host.copy());
  }
  planes.clear();
  buffer_.clear();
  live_ = nullptr;
  settled_.clear();
  layout_.drop_room();
  for (const auto& copy : copies) {
    CULPRIT_TRY(buffer_.emplace_back(), backend.from_host(copy));
  }
  return show_live(backend);
}

}  // namespace culprit::kit
