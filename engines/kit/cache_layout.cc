#include "engines/kit/cache_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace culprit::kit {
namespace {

std::vector<std::int64_t> counted(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(std::max<std::int64_t>(0, end - begin)));
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

void drop(std::vector<std::int64_t>& slots, std::int64_t from, std::int64_t count) {
  if (count > 0) slots.erase(slots.begin() + from, slots.begin() + from + count);
}

}  // namespace

std::vector<SlotRange> ranges_of(const std::vector<std::int64_t>& slots) {
  std::vector<SlotRange> ranges;
  for (const auto slot : slots)
    if (!ranges.empty() && ranges.back().end == slot)
      ++ranges.back().end;
    else
      ranges.push_back({slot, slot + 1});
  return ranges;
}

CacheLayout CacheLayout::filled(CacheSpec spec, std::int64_t live, std::int64_t capacity) {
  CacheLayout layout(spec);
  layout.slots_ = counted(0, live);
  layout.slots_.resize(static_cast<std::size_t>(capacity), -1);
  layout.live_ = layout.next_ = layout.write_ = live;
  return layout;
}

void CacheLayout::keep(const std::vector<std::int64_t>& slots, CacheMove& move) {
  std::vector<std::int64_t> kept;
  for (const auto slot : slots) kept.push_back(slots_[static_cast<std::size_t>(slot)]);
  slots_ = std::move(kept);
  move.kept = ranges_of(slots);
}

CacheMove CacheLayout::append(std::int64_t tokens) {
  CacheMove move;
  if (spec_.kind == CacheKind::rotating && tokens == 1) {
    rotate_one(move);
  } else if (has_steps() && capacity() > 0 && live_ + tokens <= capacity()) {
    keep(counted(0, capacity()), move);
    move.in_place = true;
    move.write_at = live_;
  } else {
    append_in_order(tokens, move);
  }
  for (std::int64_t i = 0; i < tokens; ++i) slots_[static_cast<std::size_t>(move.write_at + i)] = next_ + i;
  next_ += tokens;
  live_ = spec_.kind == CacheKind::rotating ? std::min(next_, capacity()) : has_steps() ? live_ + tokens : capacity();
  write_ = move.write_at + tokens;
  return move;
}

// One token in a ring, as mlx_lm's RotatingKVCache does it: the buffer grows by steps up to `size`; a longer one, which several tokens at
// once made, is cut to that first; then the oldest that need not be kept is overwritten.
void CacheLayout::rotate_one(CacheMove& move) {
  move.in_place = true;
  auto kept = counted(0, capacity());
  if (capacity() == 0 || (next_ >= capacity() && capacity() < spec_.size)) {
    move.spare = std::min(kStep, spec_.size - next_);
    write_ = next_;
  }
  if (const auto over = capacity() - spec_.size; over > 0) {
    drop(kept, spec_.keep, over);
    write_ = spec_.size;
  }
  keep(kept, move);
  slots_.resize(slots_.size() + static_cast<std::size_t>(move.spare), -1);
  if (write_ == spec_.size) write_ = spec_.keep;
  move.write_at = write_;
}

void CacheLayout::append_in_order(std::int64_t tokens, CacheMove& move) {
  std::vector<std::int64_t> kept = counted(0, live_);
  if (spec_.kind == CacheKind::rotating && capacity() > 0) {
    if (write_ < live_) {  // the ring in order of time
      kept = counted(0, spec_.keep);
      for (const auto& part : {counted(write_, live_), counted(spec_.keep, write_)}) kept.insert(kept.end(), part.begin(), part.end());
    }
    drop(kept, spec_.keep, static_cast<std::int64_t>(kept.size()) - spec_.size + 1);  // each new token sees `size`, its own included
  }
  const bool first = capacity() == 0;
  keep(kept, move);
  move.write_at = capacity();
  if (spec_.kind == CacheKind::quantized || (spec_.kind == CacheKind::padded && !first))
    move.spare = (tokens + kStep - 1) / kStep * kStep - tokens;
  slots_.resize(slots_.size() + static_cast<std::size_t>(tokens + move.spare), -1);
}

std::vector<SlotRange> CacheLayout::settle() {
  const auto over = capacity() - spec_.sink - spec_.window;
  if (spec_.kind != CacheKind::sink_window || over <= 0) return {};
  auto kept = counted(0, capacity());
  drop(kept, spec_.sink, over);
  CacheMove move;
  keep(kept, move);
  live_ = capacity();
  return move.kept;
}

Result<void> CacheLayout::trim(std::int64_t tokens) {
  if (tokens == 0) return {};
  const bool dropped = spec_.kind == CacheKind::rotating && next_ > live_;
  const bool at_end = tokens <= live_ && slots_[static_cast<std::size_t>(live_ - tokens)] == next_ - tokens;
  if (dropped || !at_end)
    return fail("not-supported", fmt::format("the cache {} has dropped tokens, so it cannot take {} back", spec_.text(), tokens));
  live_ -= tokens;
  next_ -= tokens;
  write_ -= tokens;
  std::fill(slots_.begin() + live_, slots_.end(), -1);
  const bool room_stays = has_steps() || (spec_.kind == CacheKind::rotating && capacity() <= spec_.size);
  if (!room_stays) slots_.resize(static_cast<std::size_t>(live_));
  return {};
}

}  // namespace culprit::kit
