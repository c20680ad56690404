#pragma once
// What ops with a recurrent state go on from: the last tokens of a convolution's input, or a state.
#include <map>
#include <span>
#include <string>

#include "engines/kit/backend.h"

namespace culprit::kit {

class RecurrentStates {
 public:
  /// [row, head, slot, channel], by tap; nullptr when nothing was fed yet.
  [[nodiscard]] Array before(const std::string& tap) const;
  /// `whole` [row, head, slot, channel] is what `tap` went through at this step, one slot for each token, with or without those before it;
  /// a later step goes on from `kept` of them.
  void pass(const std::string& tap, Array whole, std::int64_t kept, DType dtype) { passed_[tap] = {std::move(whole), kept, dtype}; }
  /// Ends a step that fed `fed` tokens, of which the last `taken_back` are taken back: a state goes back as far as to the step's beginning.
  /// Error id: not-supported beyond that.
  [[nodiscard]] Result<void> settle(Backend& backend, std::int64_t fed, std::int64_t taken_back);
  /// Makes each state again from a copy on the host.
  [[nodiscard]] Result<void> restore(Backend& backend);
  [[nodiscard]] bool empty() const { return states_.empty(); }

  /// One row of another batch; of none when nothing was fed of it yet.
  struct Row {
    const RecurrentStates* states = nullptr;
    std::int64_t index = 0;
  };
  [[nodiscard]] static Result<RecurrentStates> gathered(Backend& backend, std::span<const Row> rows);

 private:
  struct State {
    Array values;
    DType dtype = DType::f32;
  };
  struct Passed {
    Array whole;
    std::int64_t kept = 0;
    DType dtype = DType::f32;
  };
  std::map<std::string, State> states_;
  std::map<std::string, Passed> passed_;  // of this step
};

}  // namespace culprit::kit
