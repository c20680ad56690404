#pragma once
// Which rows decode together, step by step, and their caches: rows join a batch and leave it.
#include <map>
#include <string>
#include <vector>

#include "engine/plan.h"
#include "engines/kit/backend.h"
#include "engines/kit/cache_layout.h"
#include "engines/kit/kv_cache.h"
#include "engines/kit/recurrent_states.h"

namespace culprit::kit {

/// Rows that decode together. Their caches have columns, numbered from 0 in the order in which they were fed or gathered.
struct RowBatch {
  std::vector<std::size_t> rows;          // of the plan, in the order in which they lie
  std::vector<std::int64_t> shift;        // by row: the token in column c is the row's number c + shift; one before its first is padding
  CacheLayout layout{CacheSpec{}};        // of every cache: by columns
  std::map<std::string, KvCache> caches;  // by tap
  RecurrentStates states;
};

class RowBatches {
 public:
  RowBatches(const RunPlan& plan, CacheSpec cache) : plan_(plan), cache_(cache) {}

  /// The batch that `step` feeds; steps go in order. One of other rows than those at hand is made of their caches: rows in the plan's order,
  /// each right-aligned, as many slots as the longest has tokens, so that padding that all have is cut off. Rows left behind keep theirs in a
  /// batch of their own if a later step feeds them. Error ids: those of the backend.
  [[nodiscard]] Result<RowBatch*> at_step(Backend& backend, int step);
  /// Fresh caches.
  void clear() { batches_.clear(); }

 private:
  struct Source {
    const RowBatch* batch = nullptr;  // nullptr: not fed yet
    std::size_t index = 0;            // of the row in it
    [[nodiscard]] std::int64_t fed() const { return batch == nullptr ? 0 : batch->layout.next() + batch->shift[index]; }
    [[nodiscard]] bool holds() const { return batch != nullptr && (!batch->caches.empty() || !batch->states.empty()); }
  };
  [[nodiscard]] Source source_of(std::size_t row) const;
  [[nodiscard]] bool comes_after(std::size_t row, int step) const;
  [[nodiscard]] Result<RowBatch> gathered(Backend& backend, std::vector<std::size_t> rows) const;

  const RunPlan& plan_;
  CacheSpec cache_;
  std::vector<RowBatch> batches_;
};

}  // namespace culprit::kit
