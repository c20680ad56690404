#pragma once
// Calls of ops on packed weights, changed: what faults of quantised tensors are made of.
#include <vector>

#include "fault/fault.h"

namespace culprit {

/// `call` with a weight of other parts, of the same shapes; context.weight becomes what they mean.
[[nodiscard]] OpCall with_packed(OpCall call, Weight packed);
/// One call for each row of the batch, with that row's inputs, coordinates and result. Rows are axis 0 of each.
[[nodiscard]] std::vector<OpCall> calls_by_row(const OpCall& call);
/// Tokens of the step, by the op's input: [row, token, channel] or [row, head, token, channel].
[[nodiscard]] std::int64_t tokens_of_input(const OpCall& call);

/// Which scale a broken op takes for a group in place of the group's own: F17's values but `unquantised`.
/// scales [.., group] of a float dtype -> the same shape and dtype.
///   one        1 for each
///   raw_byte   the storage read as bytes: group i, counted over the whole plane, gets byte i as a whole number
///   quarter    group g of a row gets that of group g / 4 of the row, rounded down
///   neighbour  that of the next group in storage, which may be the next row's first; the last keeps its own
[[nodiscard]] Tensor misread_scales(const Tensor& scales, const std::string& how);

}  // namespace culprit
