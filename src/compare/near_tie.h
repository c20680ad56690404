#pragma once
// The near-tie rule: a flip of the argmax that legal arithmetic can cause is a tie, not a divergence.
#include <optional>
#include <span>

#include "base/result.h"

namespace culprit {

struct TopTwo {
  int first = 0, second = -1;  // ids; the smaller id of equal values comes first; second is -1 with one value
  double margin = 0;           // value of first - value of second; +inf with one value
};
/// NaN is never the largest; error id cannot-show when there is no value or all are NaN.
[[nodiscard]] Result<TopTwo> top_two(std::span<const double> values);

struct ArgmaxFlip {
  int expected_id = 0;
  int actual_id = 0;
  double expected_margin = 0;  // expected logits: its own choice over the other side's
  double actual_margin = 0;    // actual logits: its own choice over the other side's
  bool tie = false;
};
/// None when both sides choose the same id. `expected_bounds` and `actual_bounds`: on the error of each logit of that side, from the caller
/// (an audit, or a measured noise floor). Moving from one side's margin to the other's takes the sum of both; each side is within
/// its bounds of the truth, so legal arithmetic moves it by at most the four bounds at the two ids: up to that the flip is a tie, beyond it
/// is not. A NaN margin or bound is no tie. Error ids: tensor-layout when lengths differ, cannot-show as top_two.
[[nodiscard]] Result<std::optional<ArgmaxFlip>> argmax_flip(std::span<const double> expected, std::span<const double> actual,
                                                            std::span<const double> expected_bounds, std::span<const double> actual_bounds);

}  // namespace culprit
