#pragma once
// Random draws that are the same on every platform.
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace culprit {

/// Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators, 2014.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  [[nodiscard]] std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// A whole number of [0, count). count must be positive, and is small beside 2^64: what it is off by does not show.
  [[nodiscard]] std::size_t below(std::size_t count) { return static_cast<std::size_t>(next() % count); }
  /// A whole number of [low, high].
  [[nodiscard]] int between(int low, int high) { return low + static_cast<int>(below(static_cast<std::size_t>(high - low + 1))); }
  [[nodiscard]] bool chance(int percent) { return static_cast<int>(below(100)) < percent; }
  template <class T>
  [[nodiscard]] T pick(const std::vector<T>& values) {
    return values[below(values.size())];
  }
  template <class T>
  [[nodiscard]] T pick(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }

 private:
  std::uint64_t state_;
};

}  // namespace culprit
