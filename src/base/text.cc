#include "base/text.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

namespace culprit {
namespace {

// Insertions, deletions, substitutions and swaps of neighbours, each counted once (optimal string alignment), case-insensitive.
std::size_t edit_distance(std::string_view expected, std::string_view actual) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  std::vector<std::size_t> two_above, above, row(actual.size() + 1);
  for (std::size_t j = 0; j <= actual.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= expected.size(); ++i) {
    two_above = std::exchange(above, row);
    row[0] = i;
    for (std::size_t j = 1; j <= actual.size(); ++j) {
      const auto e = lower(expected[i - 1]), a = lower(actual[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (e == a ? 0 : 1)});
      if (i > 1 && j > 1 && e == lower(actual[j - 2]) && a == lower(expected[i - 2])) row[j] = std::min(row[j], two_above[j - 2] + 1);
    }
  }
  return row[actual.size()];
}

}  // namespace

std::vector<std::string> split(std::string_view text, char separator, std::size_t parts_max) {
  std::vector<std::string> parts = {""};
  for (const char c : text) {
    if (c == separator && parts.size() < parts_max)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

std::string nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const auto candidate : candidates) {
    const auto distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = std::string(candidate);
    }
  }
  return best;
}

}  // namespace culprit
