#pragma once
// Small text helpers.
#include <span>
#include <string>
#include <string_view>

namespace culprit {

/// The candidate with the smallest edit distance to `word` (a swap of neighbours is one edit) when it is close enough to be a slip (at most
/// a third of its length, at least 1); empty otherwise.
[[nodiscard]] std::string nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace culprit
