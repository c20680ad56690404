#pragma once
// A file descriptor that closes itself.
#include <unistd.h>

#include <utility>

namespace culprit {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      static_cast<void>(close());
      value_ = std::exchange(other.value_, -1);
    }
    return *this;
  }
  ~Descriptor() { static_cast<void>(close()); }
  /// -1 when there is none.
  [[nodiscard]] int get() const { return value_; }
  [[nodiscard]] explicit operator bool() const { return value_ >= 0; }
  /// For those who must know the outcome: network file systems report a full disk here. 0, or -1 with errno set.
  int close() { return value_ < 0 ? 0 : ::close(std::exchange(value_, -1)); }

 private:
  int value_ = -1;
};

}  // namespace culprit
