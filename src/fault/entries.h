#pragma once
// One function an entry; the list is in catalogue.cc.
#include "fault/fault.h"

namespace culprit::entries {

FaultEntry f01_rope_single_token_grid();
FaultEntry f02_view_read_as_dense();
FaultEntry f03_scales_shifted_by_row();
FaultEntry f04_batch_zero_for_all();
FaultEntry f05_query_position_advanced();
FaultEntry f06_write_slot_late();
FaultEntry f07_shared_positions();
FaultEntry f08_decode_position_reset();
FaultEntry f09_rotary_table();
FaultEntry f11_window();
FaultEntry f12_causal_mask();
FaultEntry f13_ring_cache();
FaultEntry f14_block_tail();
FaultEntry f15_split_merge();
FaultEntry f16_path_lacks_a_part();
FaultEntry f17_scale_misread();
FaultEntry f18_index_wraps();
FaultEntry f19_block_table_of_another_step();
FaultEntry f20_reused_block();
FaultEntry f21_write_slot_frozen();
FaultEntry f22_kv_heads_tiled();
FaultEntry f23_draft_stays();
FaultEntry f24_matvec_of_packed_weight();

// Pieces that entries share.

/// evaluate_node of `call`, rounded once to the dtype of the run.
[[nodiscard]] Result<Tensor> evaluate_rounded(const OpCall& call);
/// The Broken of a call that ran with other inputs or another context; nothing when its output equals call.result bit for bit.
[[nodiscard]] Result<std::optional<Broken>> altered(OpCall call);
/// The call on a node of its own with another window; 0: none.
[[nodiscard]] OpCall with_window(OpCall call, int window);
/// Tokens already in the cache before this step.
[[nodiscard]] std::int64_t cached_tokens(const OpCall& call);
/// Whether the step's tokens are the last slots: not so where a ring is written in place.
[[nodiscard]] bool appends(const OpCall& call);
/// The call of a single-token step whose attention sees more slots behind its own: `keys` and `values` [row, kv_head, slot, channel], of
/// which row r sees the first seen[r].
[[nodiscard]] OpCall with_more_slots(OpCall call, const Tensor& keys, const Tensor& values, const std::vector<std::int64_t>& seen);
/// A Broken with exact values; nothing when they equal call.result bit for bit.
[[nodiscard]] std::optional<Broken> exactly(Tensor output, const OpCall& call);
/// What the output's memory held before: the op's previous output, element by element whatever its shape, and 0 beyond its end.
class StaleBuffer {
 public:
  explicit StaleBuffer(const OpCall& call);
  [[nodiscard]] double at(std::int64_t flat) const {
    return static_cast<std::size_t>(flat) < values_.size() ? values_[static_cast<std::size_t>(flat)] : 0.0;
  }

 private:
  std::vector<double> values_;
};

}  // namespace culprit::entries
