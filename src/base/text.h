#pragma once
// Small text helpers.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace culprit {

/// The candidate with the smallest edit distance to `word` (a swap of neighbours is one edit) when it is close enough to be a slip (at most
/// a third of its length, at least 1); empty otherwise.
[[nodiscard]] std::string nearest(std::string_view word, std::span<const std::string_view> candidates);

/// The parts of `text` between separators; the last of `parts_max` holds what is left. An empty text is one empty part.
[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator, std::size_t parts_max = SIZE_MAX);

}  // namespace culprit
