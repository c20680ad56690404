#pragma once
// A probe that reads a strided view as if it were dense, beside one that follows the strides: the same buffer, the same write, two answers.
// The first three repro tests of mlx-rs pull request 338 are such probes.
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "locate/ledger.h"
#include "locate/verdict.h"

namespace culprit {

/// Keys (or values) of one row: `prefix` tokens, then one token more, [1, head, slot, channel].
struct PaddedProbe {
  std::int64_t heads = 2, channels = 64, prefix = 220, capacity = 476;
  double prefix_step = 1e-3, token_begin = 10,
         token_step = 1e-3;  // element i of the prefix is i * prefix_step, of the token begin + i * step
};

enum class Buffer {
  padded,  // of `capacity` slots, zeros behind the last token, with the live slots as a view of it
  dense    // of prefix + 1 slots
};
enum class Reading {
  linear,  // the elements of the memory from the view's begin on, as many as the view has
  strided  // the elements of the view
};

/// One reading of the live view [1, head, prefix + 1, channel], against what was written.
struct ProbeOutcome {
  Buffer buffer = Buffer::padded;
  Reading reading = Reading::strided;
  std::int64_t heads = 1;
  double difference_max = 0;                  // over all heads
  std::vector<double> head_difference_max;    // by head
  std::vector<bool> head_is_zero;             // all that was read of it is 0
  std::int64_t last_head = 0, last_slot = 0;  // where in the memory the last 16 elements were read
  [[nodiscard]] bool agrees() const { return difference_max == 0; }
};

/// The memory holds what an exact write leaves: prefix and token at each head's own slots, zeros behind.
[[nodiscard]] ProbeOutcome read_view(const PaddedProbe& probe, Buffer buffer, Reading reading);

/// What the readings say together, as a finding on the probe and not on any engine. Each reading is a run of the ledger with the factors
/// "padding", "view", "read" and "heads"; contrasts that differ in more are refused.
struct ProbeVerdict {
  std::string culprit;          // "probe": reads a strided view linearly; empty when the readings agree
  std::vector<Claim> evidence;  // with the contrasts that carry it
  std::vector<Claim> refused;   // controls that were offered and are none, with the reason
  Ledger ledger;
};
[[nodiscard]] Result<ProbeVerdict> judge_probe(const PaddedProbe& probe);

}  // namespace culprit
