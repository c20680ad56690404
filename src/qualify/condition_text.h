#pragma once
// Reads a verdict's condition as its user would: a sentence of predicates, each true or false of a place. Written by itself, without what
// made the sentence.
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "locate/condition.h"
#include "num/dtype.h"

namespace culprit {

/// Whether it holds at a place of a run.
using PlaceTest = std::function<bool(const Observation&)>;

/// `text`: "L = 1 and index of dimension 0 > 0", "always". `dtype` is that of the runs. Error ids: verdict-invalid, with the predicate that
/// is not known.
[[nodiscard]] Result<PlaceTest> read_condition(const std::string& text, DType dtype);

}  // namespace culprit
