#include "engines/kit/row_batches.h"

#include <algorithm>

namespace culprit::kit {

RowBatches::Source RowBatches::source_of(std::size_t row) const {
  for (const auto& batch : batches_)
    if (const auto found = std::ranges::find(batch.rows, row); found != batch.rows.end())
      return {&batch, static_cast<std::size_t>(found - batch.rows.begin())};
  return {};
}

bool RowBatches::comes_after(std::size_t row, int step) const {
  for (int later = step + 1; later < steps_of(plan_); ++later)
    if (std::ranges::count(rows_at(plan_, later), row) > 0) return true;
  return false;
}

Result<RowBatch> RowBatches::gathered(Backend& backend, std::vector<std::size_t> rows) const {
  RowBatch made;
  std::vector<Source> sources;
  std::int64_t live = 0;
  for (const auto row : rows) {
    sources.push_back(source_of(row));
    live = std::max(live, sources.back().fed() - padding_of(plan_, row));
  }
  auto capacity = live;
  const RowBatch* some = nullptr;
  for (const auto& source : sources) {
    made.shift.push_back(source.fed() - live);
    if (!source.holds()) continue;
    some = source.batch;
    const auto& layout = source.batch->layout;
    capacity = std::max(capacity, live - layout.live() + static_cast<std::int64_t>(layout.slots().size()));
  }
  made.rows = std::move(rows);
  if (live == 0) {
    made.layout = CacheLayout(cache_);
    return made;
  }
  made.layout = CacheLayout::filled(cache_, live, capacity);
  std::vector<RecurrentStates::Row> states;
  for (const auto& source : sources)
    states.push_back({source.holds() ? &source.batch->states : nullptr, static_cast<std::int64_t>(source.index)});
  CULPRIT_TRY(made.states, RecurrentStates::gathered(backend, states));
  for (const auto& item : some->caches) {
    std::vector<CacheRows> parts;
    for (const auto& source : sources) {
      const auto* cache = source.holds() ? &source.batch->caches.at(item.first) : nullptr;
      const auto index = static_cast<std::int64_t>(source.index);
      const bool goes_on = !parts.empty() && parts.back().cache == cache && (cache == nullptr || parts.back().end == index);
      if (goes_on)
        ++parts.back().end;
      else
        parts.push_back({cache, index, index + 1});
    }
    CULPRIT_TRY(auto cache, KvCache::gathered(backend, item.second, parts, live, capacity));
    made.caches.emplace(item.first, std::move(cache));
  }
  return made;
}

Result<RowBatch*> RowBatches::at_step(Backend& backend, int step) {
  const auto rows = rows_at(plan_, step);
  if (const auto same = std::ranges::find(batches_, rows, &RowBatch::rows); same != batches_.end()) return &*same;
  std::vector<RowBatch> next;
  CULPRIT_TRY(next.emplace_back(), gathered(backend, rows));
  for (auto& batch : batches_) {
    std::vector<std::size_t> rest;
    for (const auto row : batch.rows)
      if (std::ranges::find(rows, row) == rows.end() && comes_after(row, step)) rest.push_back(row);
    if (rest.size() == batch.rows.size()) {
      next.push_back(batch);
    } else if (!rest.empty()) {
      CULPRIT_TRY(next.emplace_back(), gathered(backend, rest));
    }
  }
  batches_ = std::move(next);
  return &batches_.front();
}

}  // namespace culprit::kit
