#include "engines/kit/kv_cache.h"

namespace culprit::kit {

// The whole buffer is no view of itself: engines would read it as one.
Result<Array> KvCache::pick(Backend& backend, const std::vector<SlotRange>& ranges) const {
  if (ranges.size() == 1 && ranges[0].begin == 0 && ranges[0].end == backend.shape(buffer_)[2]) return buffer_;
  std::vector<Array> parts;
  for (const auto& range : ranges) {
    CULPRIT_TRY(parts.emplace_back(), backend.slice(buffer_, 2, range.begin, range.end));
  }
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
  std::vector<Array> parts;
  const bool whole =
      buffer_ != nullptr && move.kept.size() == 1 && move.kept[0].begin == 0 && move.kept[0].end == backend.shape(buffer_)[2];
  if (whole)
    parts.push_back(buffer_);
  else
    for (const auto& range : move.kept) {
      CULPRIT_TRY(parts.emplace_back(), backend.slice(buffer_, 2, range.begin, range.end));
    }
  if (!move.in_place) parts.push_back(x);
  if (move.spare > 0) {
    auto shape = backend.shape(x);
    shape[2] = move.spare;
    CULPRIT_TRY(parts.emplace_back(), backend.zeros(shape, dtype_));
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
  return show_live(backend);
}

}  // namespace culprit::kit
