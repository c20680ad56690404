#pragma once
// Holds an op's recorded output against its float64 result and bounds.
#include "audit/audit.h"
#include "audit/bounded.h"

namespace culprit {

/// Fills counts, worst element, cells and judgement of `audit`, whose node, step and variant are the caller's. `actual` [row, token,
/// channel] or [row, head, token, channel] has the shape of expected.value.
///
/// An element is outside when !(error <= bound), so that NaN fails; a NaN is right only where the float64 result is one. An infinity is
/// right only with the result's sign and where result + bound reaches what the dtype rounds to infinity.
/// An element within its bound says nothing when the bound is as large as the element and as the root mean square of its [channel] vector:
/// a zero there would have passed. It counts as vacuous. Outside of a bound is outside, however wide.
void judge(const Bounded& expected, const Tensor& actual, OpAudit& audit);

/// The same for values that were only moved: `expected` must equal `actual` bit for bit (any NaN equals any NaN) where `known` says so;
/// `known` has an entry a [channel] vector. Their dtypes must be equal.
void judge_moved(const Tensor& expected, const std::vector<bool>& known, const Tensor& actual, OpAudit& audit);

/// Sets the judgement from the counts.
void conclude(OpAudit& audit);

}  // namespace culprit
