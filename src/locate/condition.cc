#include "locate/condition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>

namespace culprit {
namespace {

struct Predicate {
  std::string text;
  std::function<bool(const Observation&)> holds;
};

// In the order in which they are given up: what only restates another predicate comes first, what names a mechanism last.
std::vector<Predicate> candidates(const std::vector<Observation>& bad, bool collapsed_somewhere) {
  std::vector<Predicate> list;
  const auto all = [&](auto&& holds) { return std::ranges::all_of(bad, holds); };
  const auto offer = [&](std::string text, std::function<bool(const Observation&)> holds) {
    if (all(holds)) list.push_back({std::move(text), std::move(holds)});
  };
  std::int64_t position_min = std::numeric_limits<std::int64_t>::max(), cached_min = position_min, tokens_min = position_min,
               slot_min = position_min, before_min = position_min;
  std::set<int> layers;
  std::set<std::string> roles, variants, caches;
  for (const auto& o : bad) {
    position_min = std::min(position_min, o.position);
    cached_min = std::min(cached_min, o.cached);
    slot_min = std::min(slot_min, o.slot);
    before_min = std::min(before_min, o.position - o.base);
    tokens_min = std::min(tokens_min, o.tokens);
    layers.insert(o.layer);
    roles.insert(o.role);
    variants.insert(o.variant);
    caches.insert(o.cache);
  }
  offer("B > 1", [](const Observation& o) { return o.rows > 1; });
  offer("B = 1", [](const Observation& o) { return o.rows == 1; });
  offer(fmt::format("layer in {{{}}}", fmt::join(layers, ", ")), [layers](const Observation& o) { return layers.contains(o.layer); });
  if (position_min > 0)
    offer(fmt::format("position >= {}", position_min), [position_min](const Observation& o) { return o.position >= position_min; });
  if (slot_min > 0) offer(fmt::format("slot >= {}", slot_min), [slot_min](const Observation& o) { return o.slot >= slot_min; });
  if (caches.size() == 1)
    offer(fmt::format("{} cache", *caches.begin()), [caches](const Observation& o) { return caches.contains(o.cache); });
  // Positions are what the arms chose; how many tokens of its own sequence come before one is what a window or a cache's length is about.
  offer("token is not padding", [](const Observation& o) { return o.position >= o.base; });
  if (before_min > 0)
    offer(fmt::format("at least {} token{} before", before_min, before_min == 1 ? "" : "s"),
          [before_min](const Observation& o) { return o.position >= 0 && o.position - o.base >= before_min; });
  offer("token index > 0", [](const Observation& o) { return o.token > 0; });
  offer("rank 3", [](const Observation& o) { return o.rank == 3; });
  offer("rank 4", [](const Observation& o) { return o.rank == 4; });
  offer("row > 0", [](const Observation& o) { return o.row > 0; });
  offer("row = 0", [](const Observation& o) { return o.row == 0; });
  offer("head > 0", [](const Observation& o) { return o.head > 0; });
  offer("position base > 0", [](const Observation& o) { return o.base > 0; });
  if (cached_min > 0) offer("cache not empty", [](const Observation& o) { return o.cached > 0; });
  offer("offset has one element", [](const Observation& o) { return o.offset_scalar; });
  offer("offset is a vector", [](const Observation& o) { return !o.offset_scalar; });
  if (tokens_min > 1) offer("L > 1", [](const Observation& o) { return o.tokens > 1; });
  offer("input is a strided view", [](const Observation& o) { return !o.input_contiguous; });
  offer("L = 1", [](const Observation& o) { return o.tokens == 1; });
  if (variants.size() == 1)
    offer(fmt::format("variant {}", *variants.begin()), [variants](const Observation& o) { return variants.contains(o.variant); });
  if (collapsed_somewhere) offer("index of dimension 0 > 0", [](const Observation& o) { return o.dim0() > 0; });
  offer("after the cache was restored", [](const Observation& o) { return o.restored; });
  offer("row is padded", [](const Observation& o) { return o.padded; });
  offer("rows joined or left", [](const Observation& o) { return o.rows_changed; });
  offer("after a draft was taken back", [](const Observation& o) { return o.after_draft; });
  offer(fmt::format("tap {}", fmt::join(roles, ", ")), [roles](const Observation& o) { return roles.contains(o.role); });
  return list;
}

std::int64_t covered(const std::vector<const Observation*>& good, const std::vector<Predicate>& predicates) {
  return std::ranges::count_if(
      good, [&](const Observation* o) { return std::ranges::all_of(predicates, [&](const Predicate& p) { return p.holds(*o); }); });
}

std::string some_of(const std::set<int>& seen, const std::set<int>& bad, const char* what) {
  if (seen.size() <= 1) return "";
  if (seen == bad) return fmt::format("all {} {}s", seen.size(), what);
  return fmt::format("{}s {} of {}", what, fmt::join(bad, ", "), seen.size());
}

// "rank 4, B = 3: rows 1, 2 of 3, all 9 heads"
std::vector<std::string> describe(const std::vector<Observation>& observations) {
  struct Seen {
    std::set<int> rows, bad_rows, heads, bad_heads;
    std::set<std::int64_t> bad_lengths;
    std::int64_t bad = 0, all = 0;
  };
  std::map<std::pair<int, std::int64_t>, Seen> groups;
  for (const auto& o : observations) {
    auto& seen = groups[{o.rank, o.rows}];
    ++seen.all;
    seen.rows.insert(o.row);
    seen.heads.insert(o.head);
    if (!o.bad) continue;
    ++seen.bad;
    seen.bad_rows.insert(o.row);
    seen.bad_heads.insert(o.head);
    seen.bad_lengths.insert(o.tokens);
  }
  std::vector<std::string> lines;
  for (const auto& [key, seen] : groups) {
    if (seen.bad == 0) continue;
    std::vector<std::string> parts;
    if (auto rows = some_of(seen.rows, seen.bad_rows, "row"); !rows.empty()) parts.push_back(rows);
    if (auto heads = some_of(seen.heads, seen.bad_heads, "head"); !heads.empty()) parts.push_back(heads);
    parts.push_back(fmt::format("L in {{{}}}", fmt::join(seen.bad_lengths, ", ")));
    lines.push_back(
        fmt::format("rank {}, B = {}: {} ({} of {} places)", key.first, key.second, fmt::join(parts, ", "), seen.bad, seen.all));
  }
  return lines;
}

}  // namespace

std::string Condition::text() const { return predicates.empty() ? "always" : fmt::format("{}", fmt::join(predicates, " and ")); }

Condition contrast(const std::vector<Observation>& observations) {
  Condition condition;
  std::vector<Observation> bad;
  std::vector<const Observation*> good;
  std::set<int> layers_seen, bad_layers;
  std::set<std::string> roles;
  for (const auto& o : observations) {
    layers_seen.insert(o.layer);
    if (o.bad) {
      bad.push_back(o);
      bad_layers.insert(o.layer);
      roles.insert(o.role);
    } else {
      good.push_back(&o);
    }
  }
  condition.bad = static_cast<std::int64_t>(bad.size());
  condition.good = static_cast<std::int64_t>(good.size());
  condition.layers_seen = static_cast<int>(layers_seen.size());
  condition.layers.assign(bad_layers.begin(), bad_layers.end());
  condition.roles.assign(roles.begin(), roles.end());
  condition.where = describe(observations);
  if (bad.empty()) return condition;

  auto kept = candidates(bad, std::ranges::any_of(observations, [](const Observation& o) { return o.rank == 3 && o.head >= 0; }));
  const auto offered = kept;
  const auto least = covered(good, kept);
  for (std::size_t i = 0; i < kept.size();) {
    auto without = kept;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    if (covered(good, without) == least)
      kept = std::move(without);
    else
      ++i;
  }
  condition.good_covered = least;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    condition.predicates.push_back(kept[i].text);
    std::vector<std::string> equivalents;
    for (const auto& other : offered) {
      if (std::ranges::any_of(kept, [&](const Predicate& p) { return p.text == other.text; })) continue;
      auto swapped = kept;
      swapped[i] = other;
      if (covered(good, swapped) == least) equivalents.push_back(other.text);
    }
    condition.equivalents.push_back(std::move(equivalents));
  }
  return condition;
}

}  // namespace culprit
