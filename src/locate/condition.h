#pragma once
// The condition of a defect by contrast: what every bad place has in common and good places lack.
#include <cstdint>
#include <string>
#include <vector>

namespace culprit {

/// One place of one op's output, with everything that may be the trigger.
struct Observation {
  bool bad = false;
  std::string arm;
  std::string role;  // "q_rope"
  int layer = 0;
  int rank = 4;  // of the tensor as the op got it
  bool offset_scalar = true;
  bool input_contiguous = true;
  std::string cache;          // "concat", "padded", "quantized:bits=8,group=32"
  std::string variant;        // of the op
  std::int64_t rows = 1;      // B
  std::int64_t tokens = 1;    // L of the step
  std::int64_t cached = 0;    // tokens in the cache before the step
  std::int64_t base = 0;      // position of the sequence's first token
  bool padded = false;        // the row has padding
  bool after_draft = false;   // a step before took tokens back, of a draft or of another sequence
  bool restored = false;      // the cache was made again from a copy before
  bool rows_changed = false;  // rows joined or left before this step
  int row = 0;
  int head = -1;
  int heads = 1;
  int token = 0;               // index in the step; 0 for a cache
  std::int64_t position = -1;  // of the token in its sequence; -1 for a cache
  std::int64_t slot = -1;      // of a cache; -1 for other ops

  /// Index along dimension 0 of the tensor as the op got it: the row, or row * heads + head after a collapse to rank 3.
  [[nodiscard]] std::int64_t dim0() const { return rank == 3 ? std::int64_t{row} * heads + head : row; }
};

/// A conjunction of simple predicates that holds at every bad place.
struct Condition {
  std::vector<std::string> predicates;  // "L = 1", "index of dimension 0 > 0"
  /// For each predicate: others that separate the same places in these runs, so that the data cannot tell them apart.
  std::vector<std::vector<std::string>> equivalents;
  std::int64_t bad = 0;            // places at which the defect shows
  std::int64_t good = 0;           // places at which the op is right
  std::int64_t good_covered = 0;   // right places that satisfy the condition nevertheless
  std::vector<std::string> where;  // facts of the bad places, for people: "rank 4: rows 1, 2 of 3, all heads"
  std::vector<std::string> roles;  // roles that are bad
  std::vector<int> layers;         // layers that are bad
  int layers_seen = 0;             // layers at which the op was judged
  [[nodiscard]] std::string text() const;
};

/// Candidates hold at all bad places. A predicate stays only if dropping it would let in right places; more telling ones are kept first.
[[nodiscard]] Condition contrast(const std::vector<Observation>& observations);

}  // namespace culprit
