#include "engines/kit/kv_cache.h"

#include <fmt/format.h>

namespace culprit::kit {

Result<CacheKind> parse_cache_kind(const std::string& name) {
  if (name == "concat") return CacheKind::concat;
  if (name == "padded") return CacheKind::padded;
  return fail("not-supported", fmt::format("there is no cache of kind '{}'; expected concat or padded", name));
}

Result<Array> KvCache::update(Backend& backend, const Array& x) {
  const auto added = backend.shape(x)[2];
  if (buffer_ == nullptr) {
    buffer_ = x;
    capacity_ = length_ = added;
    live_ = x;
    return live_;
  }
  if (kind_ == CacheKind::concat) {
    const Array parts[] = {buffer_, x};
    CULPRIT_TRY(buffer_, backend.concatenate(parts, 2));
    capacity_ = length_ = length_ + added;
    live_ = buffer_;
    return live_;
  }
  if (length_ + added > capacity_) {
    const auto grown = (added + kStep - 1) / kStep * kStep;
    auto shape = backend.shape(x);
    shape[2] = grown - added;
    CULPRIT_TRY(const auto prefix, backend.slice(buffer_, 2, 0, length_));
    CULPRIT_TRY(const auto pad, backend.zeros(shape, dtype_));
    std::vector<Array> parts = {prefix, x};
    if (shape[2] > 0) parts.push_back(pad);
    CULPRIT_TRY(buffer_, backend.concatenate(parts, 2));
    capacity_ = length_ + grown;
  } else {
    CULPRIT_TRY(buffer_, backend.slice_update(buffer_, x, 2, length_));
  }
  length_ += added;
  CULPRIT_TRY(live_, backend.slice(buffer_, 2, 0, length_));
  return live_;
}

Result<void> KvCache::overwrite(Backend& backend, const Array& live) {
  if (kind_ == CacheKind::concat || capacity_ == length_) {
    buffer_ = live_ = live;
    return {};
  }
  CULPRIT_TRY(buffer_, backend.slice_update(buffer_, live, 2, 0));
  CULPRIT_TRY(live_, backend.slice(buffer_, 2, 0, length_));
  return {};
}

}  // namespace culprit::kit
