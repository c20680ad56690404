#pragma once
// For tests: makes the bytes of a GGUF file.
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace culprit {

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}
inline std::string raw_text(std::string_view text) { return raw<std::uint64_t>(text.size()) + std::string(text); }

class GgufBuilder {
 public:
  explicit GgufBuilder(std::uint32_t version = 3, std::uint64_t alignment = 32) : version_(version), alignment_(alignment) {
    if (alignment != 32) entry("general.alignment", 4, raw(static_cast<std::uint32_t>(alignment)));
  }

  /// A metadata entry of a GGUF value type number, and its bytes.
  GgufBuilder& entry(std::string_view key, std::uint32_t type, const std::string& value) {
    entries_ += raw_text(key) + raw(type) + value;
    ++entry_count_;
    return *this;
  }
  GgufBuilder& u32(std::string_view key, std::uint32_t value) { return entry(key, 4, raw(value)); }
  GgufBuilder& f32(std::string_view key, float value) { return entry(key, 6, raw(value)); }
  GgufBuilder& text(std::string_view key, std::string_view value) { return entry(key, 8, raw_text(value)); }
  /// `shape` in GGUF's own order, the row length first.
  GgufBuilder& tensor(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t type, std::string_view data) {
    data_.resize((data_.size() + alignment_ - 1) / alignment_ * alignment_, '\0');
    infos_ += raw_text(name) + raw(static_cast<std::uint32_t>(shape.size()));
    for (const auto n : shape) infos_ += raw(n);
    infos_ += raw(type) + raw<std::uint64_t>(data_.size());
    data_ += data;
    ++tensor_count_;
    return *this;
  }

  [[nodiscard]] std::string bytes() const {
    std::string file = "GGUF" + raw(version_) + raw(tensor_count_) + raw(entry_count_) + entries_ + infos_;
    if (tensor_count_ > 0) file.resize((file.size() + alignment_ - 1) / alignment_ * alignment_, '\0');
    return file + data_;
  }

 private:
  std::uint32_t version_;
  std::uint64_t alignment_;
  std::uint64_t entry_count_ = 0;
  std::uint64_t tensor_count_ = 0;
  std::string entries_;
  std::string infos_;
  std::string data_;
};

}  // namespace culprit
