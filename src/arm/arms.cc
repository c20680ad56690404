#include "arm/arms.h"

#include <algorithm>
#include <map>

namespace culprit {
namespace {

constexpr std::size_t kShort = 4;  // tokens: a prefill of two, then two steps

std::size_t full(const Fixture& fixture) { return fixture.sequences[0].size(); }

// A short prefill, then one token a step: both paths of a decoder in one arm, and a cache that is not empty.
std::vector<int> prefix_then_ones(std::size_t length) {
  std::vector<int> chunks = {static_cast<int>(std::min<std::size_t>(length, 2))};
  for (std::size_t fed = 2; fed < length; ++fed) chunks.push_back(1);
  return chunks;
}

Arm rows_of(const Fixture& fixture, std::vector<int> ids, std::size_t length) {
  Arm arm;
  for (const int id : ids) {
    const auto& sequence = fixture.sequences[static_cast<std::size_t>(id)];
    arm.plan.sequences.emplace_back(sequence.begin(), sequence.begin() + static_cast<std::ptrdiff_t>(std::min(length, sequence.size())));
  }
  arm.plan.sequence_ids = std::move(ids);
  arm.plan.position_base = fixture.position_base;
  arm.plan.cache = fixture.cache;
  arm.plan.chunks = prefix_then_ones(arm.plan.sequences[0].size());
  return arm;
}

Arm in_chunks(const Fixture& f, std::vector<int> ids, std::size_t length, std::size_t chunk) {
  Arm arm = rows_of(f, std::move(ids), length);
  arm.plan.chunks.clear();
  for (std::size_t left = std::min(length, full(f)); left > 0; left -= std::min(left, chunk))
    arm.plan.chunks.push_back(static_cast<int>(std::min(left, chunk)));
  return arm;
}

Arm incremental(const Fixture& f) { return in_chunks(f, {0}, full(f), 1); }
Arm prefill(const Fixture& f) { return in_chunks(f, {0}, full(f), full(f)); }
Arm chunked(const Fixture& f) { return in_chunks(f, {0}, full(f), 3); }
// The last chunk is shorter than the one before it, and of two tokens, which no other arm feeds to a cache that is not empty.
Arm uneven_chunks(const Fixture& f) { return in_chunks(f, {0}, full(f), full(f) - 2); }
Arm reprefill(const Fixture& f) {
  Arm arm = incremental(f);
  arm.plan.reprefill = true;
  return arm;
}
// Every row; the first of them come last, for another order.
std::vector<int> all_rows(const Fixture& f, std::size_t first = 0) {
  std::vector<int> ids(f.sequences.size());
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int>((i + first) % ids.size());
  return ids;
}
Arm batch(const Fixture& f) { return rows_of(f, all_rows(f), kShort); }
Arm alone_0(const Fixture& f) { return rows_of(f, {0}, kShort); }
Arm alone_1(const Fixture& f) { return rows_of(f, {1}, kShort); }
Arm alone_2(const Fixture& f) { return rows_of(f, {2}, kShort); }
Arm equal_rows(const Fixture& f) { return rows_of(f, {0, 0, 0}, kShort); }
Arm batch_prefill(const Fixture& f) { return in_chunks(f, all_rows(f), kShort, kShort); }

Arm with_variant(Arm arm, const char* op, const char* variant) {
  arm.plan.variants[op] = variant;
  return arm;
}
Arm rank_3(const Fixture& f) { return with_variant(alone_0(f), "rope.rank", "3"); }
Arm batch_rank_3(const Fixture& f) { return with_variant(batch(f), "rope.rank", "3"); }
Arm per_row_offset(const Fixture& f) { return with_variant(batch(f), "rope.offset", "per_row"); }
Arm padded(const Fixture& f) {
  Arm arm = alone_0(f);
  arm.plan.cache = "padded";
  return arm;
}
Arm with_cache(Arm arm, const char* cache) {
  arm.plan.cache = cache;
  return arm;
}
Arm poisoned(const Fixture& f) {
  Arm arm = padded(f);
  arm.plan.poison = true;
  return arm;
}
// As large as the run: nothing is dropped.
Arm rotating(const Fixture& f) { return with_cache(alone_0(f), "rotating:size=4,keep=1"); }
Arm sink_window(const Fixture& f) { return with_cache(alone_0(f), "sink_window:sink=1,window=3"); }
// Smaller: attention sees less than with other caches, so these compare with their own kind only. A first chunk that fits is as good as
// single tokens.
constexpr const char* kRing = "rotating:size=3,keep=1";
constexpr const char* kSinks = "sink_window:sink=1,window=2";
constexpr std::size_t kOverflowing = 5;  // tokens: each slot that may be overwritten is
Arm ring(const Fixture& f) { return with_cache(rows_of(f, {0}, kOverflowing), kRing); }
Arm ring_single(const Fixture& f) { return with_cache(in_chunks(f, {0}, kOverflowing, 1), kRing); }
// The two ways in which a chunk and a ring meet: the ring has wrapped before, or the chunk is longer than the ring by two or more.
constexpr const char* kSmallRing = "rotating:size=2,keep=0";
Arm ring_after_wrap(const Fixture& f) {
  Arm arm = with_cache(rows_of(f, {0}, kOverflowing), kSmallRing);
  arm.plan.chunks = {2, 1, static_cast<int>(arm.plan.sequences[0].size()) - 3};
  return arm;
}
Arm ring_long_prefill(const Fixture& f) {
  Arm arm = with_cache(rows_of(f, {0}, kOverflowing), kSmallRing);
  arm.plan.chunks = {static_cast<int>(arm.plan.sequences[0].size()) - 1, 1};
  return arm;
}
Arm sinks(const Fixture& f) { return with_cache(rows_of(f, {0}, kOverflowing), kSinks); }
Arm sinks_single(const Fixture& f) { return with_cache(in_chunks(f, {0}, kOverflowing, 1), kSinks); }
// What is stored is not what was written, and attention reads what is stored: logits differ from those of other caches by what the bits
// cannot hold, so these too compare with their own kind only. A slot holds its own token's values, however many came with it. The smallest
// group suits the heads of most models; where it does not, the arm is left out.
constexpr const char* kEightBits = "quantized:bits=8,group=32";
constexpr const char* kFourBits = "quantized:bits=4,group=32";
Arm quantized_8(const Fixture& f) { return with_cache(alone_0(f), kEightBits); }
Arm quantized_8_single(const Fixture& f) { return with_cache(in_chunks(f, {0}, kShort, 1), kEightBits); }
Arm quantized_4(const Fixture& f) { return with_cache(alone_0(f), kFourBits); }
Arm quantized_4_single(const Fixture& f) { return with_cache(in_chunks(f, {0}, kShort, 1), kFourBits); }

Arm restored(Arm arm) {
  for (int step = 0; step < static_cast<int>(arm.plan.chunks.size()) - 1; ++step) arm.plan.restore_after.push_back(step);
  return arm;
}
Arm restored_cache(const Fixture& f) { return restored(alone_0(f)); }
Arm restored_quantized(const Fixture& f) { return restored(quantized_8(f)); }

// Another row's tokens behind the first two: a prefill of three, one token more, and back to two.
Arm reused_cache(const Fixture& f) {
  Arm arm = alone_0(f);
  const auto& other = f.sequences[1];
  arm.plan.reuse = Reuse{.common = 2, .tokens = {{other[2], other[3]}}, .chunks = {3, 1}};
  arm.plan.chunks = {1, 1};
  return arm;
}

// The second step feeds its token and two of another row's, which it takes back.
Arm with_draft(const Fixture& f, Arm arm) {
  const auto& other = f.sequences[1];
  arm.plan.drafts.push_back({.step = 1, .tokens = {{other[2], other[3]}}});
  return arm;
}
Arm speculative(const Fixture& f) { return with_draft(f, alone_0(f)); }
// The buffer is then longer than the ring.
Arm ring_speculative(const Fixture& f) { return with_draft(f, ring(f)); }
Arm permuted(const Fixture& f) { return rows_of(f, all_rows(f, f.sequences.size() - 1), kShort); }
Arm unequal(const Fixture& f) {
  Arm arm = rows_of(f, {0, 1, 2}, kShort);
  for (std::size_t row = 1; row < arm.plan.sequences.size(); ++row) arm.plan.sequences[row].resize(kShort - row);
  return arm;
}

// Rows 0 and 1 begin, row 2 begins alone; all three decode together, then row 1 leaves, then row 0, and row 2 sheds the padding that it
// got when it joined.
Arm joining(const Fixture& f) {
  Arm arm = rows_of(f, {0, 1, 2}, kShort);
  arm.plan.active = {{0, 1}, {2}, {0, 1, 2}, {0, 2}, {2}};
  arm.plan.chunks = {2, 1, 1, 1, 1};
  arm.plan.sequences[1].resize(kShort - 1);
  return arm;
}

Arm at_base(const Fixture& f, std::size_t which) {
  Arm arm = alone_0(f);
  arm.plan.position_base = f.other_bases[which];
  return arm;
}
Arm base_0(const Fixture& f) { return at_base(f, 0); }
Arm base_1021(const Fixture& f) { return at_base(f, 1); }
Arm base_4099(const Fixture& f) { return at_base(f, 2); }
// Two of the tokens before a limit and the rest from it on: an index that wraps at the limit moves these away from those. In a run on one side
// of it all move alike, and since rotations are relative the logits stay as they were.
Arm across(const Fixture& f, std::int64_t limit) {
  Arm arm = alone_0(f);
  arm.plan.position_base = limit - 2;
  return arm;
}
Arm across_256(const Fixture& f) { return across(f, 256); }
Arm across_2048(const Fixture& f) { return across(f, 2048); }
Arm evaluated(const Fixture& f, Sync sync) {
  Arm arm = alone_0(f);
  arm.plan.sync = sync;
  return arm;
}
Arm each_op(const Fixture& f) { return evaluated(f, Sync::each_op); }
Arm each_layer(const Fixture& f) { return evaluated(f, Sync::each_layer); }
Arm async(const Fixture& f) { return evaluated(f, Sync::async); }

Arm offered(Arm arm, const char* op, const char* variant) {
  arm = with_variant(std::move(arm), op, variant);
  arm.needs_op = op;
  arm.needs_variant = variant;
  return arm;
}
Arm composed_rope(const Fixture& f) { return offered(alone_0(f), "rope", "composed"); }
Arm composed_sdpa(const Fixture& f) { return offered(alone_0(f), "sdpa", "composed"); }
Arm composed_norm(const Fixture& f) { return offered(alone_0(f), "rms_norm", "composed"); }
Arm reversed_sum(const Fixture& f) { return offered(alone_0(f), "linear", "reversed"); }
// One token: packed matmul is slow on some engines (MLX on a CPU: seconds a token), and one shows every weight. Its control is as short.
Arm one_token(const Fixture& f) { return in_chunks(f, {0}, 1, 1); }
Arm quantized(const Fixture& f) { return offered(one_token(f), "linear", "quantized"); }
// A step of two tokens and one of one, in two rows: what is wrong of a single vector and right of several, or wrong of later rows, shows.
Arm two_rows(const Fixture& f) { return rows_of(f, {0, 1}, kShort - 1); }
Arm quantized_rows(const Fixture& f) { return offered(two_rows(f), "linear", "quantized"); }
Arm quantized_experts(const Fixture& f) { return offered(one_token(f), "expert_linear", "quantized"); }

}  // namespace

std::vector<ArmEntry> arm_entries() {
  return {
      {"incremental", "one row, one token a step", incremental},
      {"prefill", "one row, the whole prompt at once", prefill},
      {"chunked", "one row, three tokens a step", chunked},
      {"uneven chunks", "one row, all but two tokens at once, then two", uneven_chunks},
      {"re-prefill", "one row, the prefix again at each step with a fresh cache", reprefill},
      {"alone", "row 0 alone: a prefill of two, then single tokens", alone_0},
      {"alone row 1", "row 1 alone, as in the batch", alone_1},
      {"alone row 2", "row 2 alone, as in the batch", alone_2},
      {"batch", "three distinct rows together", batch},
      {"equal rows", "the same row three times", equal_rows},
      {"batch prefill", "three distinct rows, the whole prompt at once", batch_prefill},
      {"rank 3", "row 0 alone, heads collapsed into dimension 0 for RoPE", rank_3},
      {"batch rank 3", "three rows, rows and heads collapsed into dimension 0 for RoPE", batch_rank_3},
      {"per-row offset", "three rows, RoPE's offset given as a vector", per_row_offset},
      {"padded cache", "row 0 alone with the padded cache", padded},
      {"poisoned cache", "row 0 alone with the padded cache, whose spare slots hold NaN", poisoned},
      {"rotating cache", "row 0 alone with a rotating cache that holds all", rotating},
      {"ring", "row 0 with a rotating cache of three tokens, of which it keeps the first", ring},
      {"ring, single tokens", "the same, one token a step", ring_single},
      {"ring, chunk after a wrap", "row 0 with a rotating cache of two tokens: a prefill of two, one token, then the rest at once",
       ring_after_wrap},
      {"ring, long prefill", "row 0 with a rotating cache of two tokens: a prefill of all but one token, then that", ring_long_prefill},
      {"ring, speculative", "as 'ring', two draft tokens fed at the second step and taken back", ring_speculative},
      {"sink-window cache", "row 0 alone with a cache of a sink and a window that holds all", sink_window},
      {"sinks", "row 0 with a cache of one sink and a window of two tokens", sinks},
      {"sinks, single tokens", "the same, one token a step", sinks_single},
      {"quantized cache, 8 bits", "row 0 alone, its cache quantised to 8 bits in groups of 32 channels", quantized_8},
      {"quantized cache, 8 bits, single tokens", "the same, one token a step", quantized_8_single},
      {"quantized cache, 4 bits", "row 0 alone, its cache quantised to 4 bits in groups of 32 channels", quantized_4},
      {"quantized cache, 4 bits, single tokens", "the same, one token a step", quantized_4_single},
      {"restored cache", "row 0 alone, its cache copied to the host, dropped and made again after each step", restored_cache},
      {"restored quantized cache", "the same with the cache quantised to 8 bits, in its packed form", restored_quantized},
      {"reused cache", "row 0 behind the prefix of another sequence that was decoded before and taken back", reused_cache},
      {"speculative", "row 0 alone, two draft tokens fed at the second step and taken back", speculative},
      {"permuted rows", "the three rows in another order", permuted},
      {"unequal rows", "three rows of four, three and two tokens, padded on the left", unequal},
      {"joining rows", "rows 0 and 1, which row 2 joins; then row 1 leaves, and row 0", joining},
      {"base 0", "row 0 alone, first token at position 0", base_0},
      {"base 1021", "row 0 alone, first token at position 1021", base_1021},
      {"base 4099", "row 0 alone, first token at position 4099", base_4099},
      {"base 254", "row 0 alone, two tokens before position 256 and two from it on", across_256},
      {"base 2046", "row 0 alone, two tokens before position 2048 and two from it on", across_2048},
      {"each op", "row 0 alone, evaluated after each op", each_op},
      {"each layer", "row 0 alone, evaluated after each layer", each_layer},
      {"async", "row 0 alone, each op's evaluation begun at once and waited for at the end of the step", async},
      {"composed rope", "row 0 alone, RoPE composed of elementary ops", composed_rope},
      {"composed sdpa", "row 0 alone, attention composed of elementary ops", composed_sdpa},
      {"composed rms_norm", "row 0 alone, RMSNorm composed of elementary ops", composed_norm},
      {"reversed sum", "row 0 alone, linear layers summed in another order", reversed_sum},
      {"one token", "the first token of row 0 alone", one_token},
      {"quantized", "the first token of row 0 alone, linear layers on the packed weights", quantized},
      {"two rows", "rows 0 and 1 together: a prefill of two, then a single token", two_rows},
      {"quantized rows", "the same, linear layers on the packed weights", quantized_rows},
      {"quantized experts", "the first token of row 0 alone, experts on the packed weights", quantized_experts},
  };
}

std::vector<Arm> make_arms(const Fixture& fixture) {
  std::vector<Arm> arms;
  for (const auto& entry : arm_entries()) {
    auto arm = entry.make(fixture);
    arm.name = entry.name;
    arm.what = entry.what;
    arm.plan.name = entry.name;
    for (int step = 0; step < steps_of(arm.plan); ++step)
      arm.cost_tokens += (kept_at(arm.plan, step) + foreign_at(arm.plan, step)) * static_cast<int>(rows_at(arm.plan, step).size());
    arms.push_back(std::move(arm));
  }
  std::ranges::stable_sort(arms, {}, &Arm::cost_tokens);
  return arms;
}

std::vector<Relation> relations() {
  return {
      {"incremental = prefill", "prefill", "incremental"},
      {"incremental = re-prefill", "re-prefill", "incremental"},
      {"chunked = prefill", "prefill", "chunked"},
      {"uneven chunks = prefill", "prefill", "uneven chunks"},
      {"row 0 alone = row 0 in a batch", "alone", "batch"},
      {"row 1 alone = row 1 in a batch", "alone row 1", "batch"},
      {"row 2 alone = row 2 in a batch", "alone row 2", "batch"},
      {"equal rows = row alone", "alone", "equal rows"},
      {"batched steps = batched prefill", "batch prefill", "batch"},
      {"rank 3 = rank 4", "alone", "rank 3"},
      {"rank 3 = rank 4, batched", "batch", "batch rank 3"},
      {"per-row offset = scalar offset", "batch", "per-row offset"},
      {"padded cache = concat cache", "alone", "padded cache"},
      {"poisoned = padded cache", "padded cache", "poisoned cache"},
      {"rotating cache = concat cache", "alone", "rotating cache"},
      {"ring: single tokens = a chunk that fits, then single tokens", "ring", "ring, single tokens"},
      {"ring: speculative = incremental", "ring", "ring, speculative"},
      {"sink-window cache = concat cache", "alone", "sink-window cache"},
      {"sinks: single tokens = a chunk that fits, then single tokens", "sinks", "sinks, single tokens"},
      {"quantized cache, 8 bits: single tokens = a prefill of two, then single tokens", "quantized cache, 8 bits",
       "quantized cache, 8 bits, single tokens"},
      {"quantized cache, 4 bits: single tokens = a prefill of two, then single tokens", "quantized cache, 4 bits",
       "quantized cache, 4 bits, single tokens"},
      {"restored cache = cache that stayed", "alone", "restored cache"},
      {"restored quantized cache = one that stayed", "quantized cache, 8 bits", "restored quantized cache"},
      {"reused cache = fresh cache", "alone", "reused cache"},
      {"speculative = incremental", "alone", "speculative"},
      {"permuted rows = rows", "batch", "permuted rows"},
      {"left-padded rows = rows of equal length", "batch", "unequal rows"},
      {"rows that join and leave = rows that stay", "batch", "joining rows"},
      {"position base 0 = 257", "alone", "base 0"},
      {"position base 1021 = 257", "alone", "base 1021"},
      {"position base 4099 = 257", "alone", "base 4099"},
      {"position base 254 = 257", "alone", "base 254"},
      {"position base 2046 = 257", "alone", "base 2046"},
      {"each op = lazy evaluation", "alone", "each op"},
      {"each layer = lazy evaluation", "alone", "each layer"},
      {"async = lazy evaluation", "alone", "async"},
      {"composed rope = fused rope", "alone", "composed rope"},
      {"composed sdpa = fused sdpa", "alone", "composed sdpa"},
      {"composed rms_norm = fused rms_norm", "alone", "composed rms_norm"},
      {"another summation order", "alone", "reversed sum"},
      {"quantized = dequantized matmul", "one token", "quantized"},
      {"quantized = dequantized matmul, two rows", "two rows", "quantized rows"},
      {"quantized = dequantized experts", "one token", "quantized experts"},
  };
}

namespace {

/// Whether a step of `plan` begins without a token that was fed before it.
bool drops_tokens(const RunPlan& plan) {
  const auto spec = CacheSpec::parse(plan.cache);
  if (!spec || spec->keeps_all()) return false;
  CacheContent content(*spec);
  for (int step = 0; step < steps_of(plan); ++step) {
    feed_step(plan, step, content);
    if (static_cast<std::int64_t>(content.held().size()) < content.next()) return true;
  }
  return false;
}

/// Rows that are padded are fed other tokens of theirs at a step than rows that are not.
bool equal_steps(const RunPlan& one, const RunPlan& other) {
  return one.chunks == other.chunks && one.reprefill == other.reprefill && one.active == other.active &&
         has_padding(one) == has_padding(other) && one.drafts.empty() == other.drafts.empty() &&
         one.reuse.has_value() == other.reuse.has_value();
}

bool equal_runs(const RunPlan& one, RunPlan other) {
  other.name = one.name;
  return to_json(one) == to_json(other);
}

bool holds(const RunPlan& one, const RunPlan& other, const std::string& cache) {
  if (one.cache != other.cache || equal_runs(one, other)) return false;
  if (one.cache != cache) return true;  // both arms chose it, and the relation is about it
  const auto spec = CacheSpec::parse(one.cache);
  if (spec && spec->quantizes() && one.position_base != other.position_base) return false;
  return equal_steps(one, other) || !(drops_tokens(one) || drops_tokens(other));
}

}  // namespace

std::vector<Relation> relations(const Fixture& fixture) {
  auto all = relations();
  if (fixture.cache == RunPlan().cache) return all;
  std::map<std::string, RunPlan> plans;
  for (auto& arm : make_arms(fixture)) plans[arm.name] = std::move(arm.plan);
  std::erase_if(all,
                [&](const Relation& relation) { return !holds(plans.at(relation.expected), plans.at(relation.actual), fixture.cache); });
  return all;
}

std::vector<std::vector<int>> random_sequences(int rows, int length, int vocabulary, std::uint64_t seed) {
  // splitmix64 (Steele, Lea, Flood, 2014): the same ids everywhere.
  const auto next = [&seed] {
    std::uint64_t z = (seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  };
  std::vector<std::vector<int>> sequences(static_cast<std::size_t>(rows));
  for (auto& sequence : sequences)
    for (int i = 0; i < length; ++i) sequence.push_back(static_cast<int>(next() % static_cast<std::uint64_t>(vocabulary)));
  return sequences;
}

}  // namespace culprit
