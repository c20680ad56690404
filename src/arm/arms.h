#pragma once
// Arms: the runs of an exploration, and the relations between them that must hold. A schedule only changes how the same logical values
// are computed, so two arms of a relation differ in exactly one factor.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/plan.h"

namespace culprit {

/// What the arms of one exploration share.
struct Fixture {
  std::vector<std::vector<int>> sequences;  // at least three, distinct, equal lengths >= 4
  std::int64_t position_base = 257;         // 8 bits of mantissa cannot hold it, nor its odd neighbours
  std::vector<std::int64_t> other_bases = {0, 1021, 4099};
  std::string cache = "concat";  // CacheSpec, of the arms that are not about another one
};

struct Arm {
  std::string name;  // "incremental"
  std::string what;  // one line for people
  RunPlan plan;
  int cost_tokens = 0;   // rows x tokens fed
  std::string needs_op;  // variant arms: only when the engine offers `needs_variant` for this op
  std::string needs_variant;
};

/// Two arms that must give the same values at the same (sequence, position).
struct Relation {
  std::string name;      // "incremental = prefill"
  std::string expected;  // arm names
  std::string actual;
};

/// One entry of the arm list: documents, builds and orders it. `culprit find --list-arms` prints the list.
struct ArmEntry {
  std::string_view name;
  std::string_view what;
  Arm (*make)(const Fixture&);
};
[[nodiscard]] std::vector<ArmEntry> arm_entries();

/// All arms, cheapest first.
[[nodiscard]] std::vector<Arm> make_arms(const Fixture& fixture);
/// All relations. They hold where `Fixture::cache` is concat.
[[nodiscard]] std::vector<Relation> relations();
/// Those that hold between the arms of `fixture`. With another cache than concat these are left out: relations of two caches, for one of them
/// may hold less than the other; of two positions when keys are quantised after RoPE, for each position is rounded in its own way; of two
/// schedules, or of rows with and without padding, when the cache drops tokens, for what is dropped depends on the steps; and of arms that became the same run.
[[nodiscard]] std::vector<Relation> relations(const Fixture& fixture);

/// `rows` sequences of `length` random token ids, the same for the same seed on every machine.
[[nodiscard]] std::vector<std::vector<int>> random_sequences(int rows, int length, int vocabulary, std::uint64_t seed);

}  // namespace culprit
