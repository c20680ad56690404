#include "format/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <span>
#include <type_traits>

#include "format/ggml_blocks.h"

namespace culprit {
namespace {
constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::uint64_t kAlignmentDefault = 32;
constexpr std::uint32_t kDimensionsMax = 4;                   // GGML_MAX_DIMS
constexpr std::uint64_t kArrayKept = 1 << 20;                 // longer arrays are checked, not kept
constexpr std::uint64_t kEntryBytesMin = 8 + 4 + 1;           // empty key, type, the smallest value
constexpr std::uint64_t kTensorBytesMin = 8 + 4 + 8 + 4 + 8;  // empty name, one dimension

enum class ValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// The fewest bytes that a value of this type takes; 0 for no type.
std::uint64_t bytes_min(ValueType type) {
  switch (type) {
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::boolean:
      return 1;
    case ValueType::u16:
    case ValueType::i16:
      return 2;
    case ValueType::u32:
    case ValueType::i32:
    case ValueType::f32:
      return 4;
    case ValueType::string:
    case ValueType::u64:
    case ValueType::i64:
    case ValueType::f64:
      return 8;
    case ValueType::array:
      return 12;
  }
  return 0;
}

/// Names go into messages and reports: control bytes and what is not ASCII are not names.
bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

class Reader {
 public:
  explicit Reader(const MappedFile& file) : path_(file.path()), bytes_(file.bytes()) {}

  Result<void> read(std::map<std::string, GgufValue>& metadata, std::vector<GgufTensor>& tensors) {
    CULPRIT_CHECK(read_version());
    CULPRIT_TRY(const auto tensor_count, read_count("tensors", kTensorBytesMin));
    CULPRIT_TRY(const auto entry_count, read_count("metadata entries", kEntryBytesMin));
    for (std::uint64_t i = 0; i < entry_count; ++i) CULPRIT_CHECK(read_entry(metadata));
    std::set<std::string> names;
    for (std::uint64_t i = 0; i < tensor_count; ++i) {
      CULPRIT_TRY(auto tensor, read_tensor());
      if (!names.insert(tensor.name).second) return invalid(at_, fmt::format("tensor {} is there twice", tensor.name));
      tensors.push_back(std::move(tensor));
    }
    return place(tensors);
  }

 private:
  [[nodiscard]] std::string where(std::uint64_t offset) const { return fmt::format("{} @ {}", path_.string(), offset); }
  [[nodiscard]] tl::unexpected<Error> invalid(std::uint64_t offset, std::string message) const {
    return fail("gguf-invalid", std::move(message), where(offset));
  }
  [[nodiscard]] tl::unexpected<Error> unsupported(std::uint64_t offset, std::string message) const {
    return fail("gguf-unsupported", std::move(message), where(offset));
  }
  [[nodiscard]] std::uint64_t remaining() const { return bytes_.size() - at_; }

  template <class T>
  Result<T> number() {
    if (remaining() < sizeof(T)) return invalid(at_, fmt::format("expected {} bytes, {} remain", sizeof(T), remaining()));
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  /// A count of things that take at least `each` bytes: the file must be able to hold them.
  Result<std::uint64_t> read_count(std::string_view what, std::uint64_t each) {
    const auto begin = at_;
    CULPRIT_TRY(const auto count, number<std::uint64_t>());
    if (count > remaining() / each)
      return invalid(begin, fmt::format("{} {} of at least {} bytes, {} bytes remain", count, what, each, remaining()));
    return count;
  }

  Result<std::string> text() {
    CULPRIT_TRY(const auto length, read_count("bytes of text", 1));
    std::string text(reinterpret_cast<const char*>(bytes_.data()) + at_, static_cast<std::size_t>(length));
    at_ += length;
    return text;
  }

  Result<std::string> name(std::string_view what) {
    const auto begin = at_;
    CULPRIT_TRY(auto name, text());
    if (!is_name(name)) return invalid(begin, fmt::format("a {} of {} bytes is empty or not printable ASCII", what, name.size()));
    return name;
  }

  Result<void> read_version() {
    CULPRIT_TRY(const auto magic, number<std::uint32_t>());
    if (magic != kMagic) return invalid(0, fmt::format("expected magic {:#010x} (GGUF), got {:#010x}", kMagic, magic));
    CULPRIT_TRY(const auto version, number<std::uint32_t>());
    if (version != 0 && (version & 0xffff) == 0) return unsupported(4, fmt::format("version {:#x} looks big-endian", version));
    if (version != 2 && version != 3) return unsupported(4, fmt::format("expected version 2 or 3, got {}", version));
    return {};
  }

  Result<ValueType> value_type() {
    const auto begin = at_;
    CULPRIT_TRY(const auto type, number<std::uint32_t>());
    if (bytes_min(static_cast<ValueType>(type)) == 0) return invalid(begin, fmt::format("there is no value type {}", type));
    return static_cast<ValueType>(type);
  }

  Result<GgufValue> value(ValueType type) {
    switch (type) {
      case ValueType::u8:
        return widened<std::uint8_t>();
      case ValueType::i8:
        return widened<std::int8_t>();
      case ValueType::u16:
        return widened<std::uint16_t>();
      case ValueType::i16:
        return widened<std::int16_t>();
      case ValueType::u32:
        return widened<std::uint32_t>();
      case ValueType::i32:
        return widened<std::int32_t>();
      case ValueType::u64:
        return widened<std::uint64_t>();
      case ValueType::i64:
        return widened<std::int64_t>();
      case ValueType::f32:
        return widened<float>();
      case ValueType::f64:
        return widened<double>();
      case ValueType::boolean:
        return boolean();
      case ValueType::string: {
        CULPRIT_TRY(auto string, text());
        return GgufValue(std::move(string));
      }
      case ValueType::array:
        return array();
    }
    return invalid(at_, "there is no such value type");
  }

  /// As the widest type of its kind.
  template <class T>
  Result<GgufValue> widened() {
    CULPRIT_TRY(const auto narrow, number<T>());
    using Wide =
        std::conditional_t<std::is_floating_point_v<T>, double, std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;
    return GgufValue(static_cast<Wide>(narrow));
  }

  Result<GgufValue> boolean() {
    const auto begin = at_;
    CULPRIT_TRY(const auto byte, number<std::uint8_t>());
    if (byte > 1) return invalid(begin, fmt::format("expected a bool of 0 or 1, got {}", byte));
    return GgufValue(byte == 1);
  }

  Result<GgufValue> array() {
    const auto begin = at_;
    CULPRIT_TRY(const auto type, value_type());
    if (type == ValueType::array) return unsupported(begin, "an array of arrays");
    CULPRIT_TRY(const auto count, read_count("array elements", bytes_min(type)));
    const bool kept = count <= kArrayKept;
    if (type == ValueType::string) {
      std::vector<std::string> strings;
      for (std::uint64_t i = 0; i < count; ++i) {
        CULPRIT_TRY(auto string, text());
        if (kept) strings.push_back(std::move(string));
      }
      return GgufValue(std::move(strings));
    }
    if (!kept) {
      at_ += count * bytes_min(type);  // numbers have a fixed size, and read_count saw that they are there
      return GgufValue(std::vector<double>());
    }
    std::vector<double> numbers;
    for (std::uint64_t i = 0; i < count; ++i) {
      CULPRIT_TRY(const auto element, value(type));
      numbers.push_back(std::visit(
          [](const auto& x) {
            if constexpr (std::is_arithmetic_v<std::decay_t<decltype(x)>>) return static_cast<double>(x);
            return 0.0;
          },
          element));
    }
    return GgufValue(std::move(numbers));
  }

  Result<void> read_entry(std::map<std::string, GgufValue>& metadata) {
    const auto begin = at_;
    CULPRIT_TRY(auto key, name("key"));
    CULPRIT_TRY(const auto type, value_type());
    const auto value_begin = at_;
    CULPRIT_TRY(auto entry, value(type));
    if (key == "general.alignment") {
      const auto* alignment = std::get_if<std::uint64_t>(&entry);
      if (type != ValueType::u32 || !std::has_single_bit(*alignment))
        return invalid(value_begin, "general.alignment is not a power of two of type u32");
      alignment_ = *alignment;
    }
    if (!metadata.emplace(key, std::move(entry)).second) return invalid(begin, fmt::format("key {} is there twice", key));
    return {};
  }

  /// One tensor's entry, its offset still relative to the data.
  Result<GgufTensor> read_tensor() {
    GgufTensor tensor;
    CULPRIT_TRY(tensor.name, name("tensor name"));
    const auto dimensions_begin = at_;
    CULPRIT_TRY(const auto dimensions, number<std::uint32_t>());
    if (dimensions == 0 || dimensions > kDimensionsMax)
      return invalid(dimensions_begin,
                     fmt::format("tensor {}: expected 1 to {} dimensions, got {}", tensor.name, kDimensionsMax, dimensions));
    for (std::uint32_t i = 0; i < dimensions; ++i) {
      const auto begin = at_;
      CULPRIT_TRY(const auto length, number<std::uint64_t>());
      if (length == 0 || length > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return invalid(begin, fmt::format("tensor {}: a dimension of {}", tensor.name, length));
      tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(length));
    }
    const auto type_begin = at_;
    CULPRIT_TRY(tensor.type, number<std::uint32_t>());
    const auto* type = find_ggml_type(tensor.type);
    if (type == nullptr) return unsupported(type_begin, fmt::format("tensor {}: type {} is not known", tensor.name, tensor.type));
    tensor.type_name = type->name;
    if (tensor.shape.back() % type->block_elements != 0)
      return invalid(dimensions_begin, fmt::format("tensor {}: rows of {} elements are not whole {} blocks of {}", tensor.name,
                                                   tensor.shape.back(), type->name, type->block_elements));
    const auto count = checked_count(tensor.shape);
    if (!count || __builtin_mul_overflow(static_cast<std::uint64_t>(*count / type->block_elements),
                                         static_cast<std::uint64_t>(type->block_bytes), &tensor.bytes))
      return invalid(dimensions_begin, fmt::format("tensor {}: shape {} overflows", tensor.name, to_string(tensor.shape)));
    CULPRIT_TRY(tensor.offset, number<std::uint64_t>());
    return tensor;
  }

  /// Makes offsets absolute, now that the begin of the data is known, and checks that the tensors lie in the file without overlap.
  Result<void> place(std::vector<GgufTensor>& tensors) const {
    const auto padding = (alignment_ - at_ % alignment_) % alignment_;
    if (!tensors.empty() && padding > remaining())
      return invalid(at_, fmt::format("expected {} bytes of padding before the data, {} remain", padding, remaining()));
    const auto data_begin = at_ + padding;
    for (auto& tensor : tensors) {
      const auto available = bytes_.size() - data_begin;
      if (tensor.offset % alignment_ != 0)
        return invalid(data_begin, fmt::format("tensor {}: offset {} is not a multiple of {}", tensor.name, tensor.offset, alignment_));
      if (tensor.offset > available || tensor.bytes > available - tensor.offset)
        return invalid(data_begin, fmt::format("tensor {}: {} bytes at {} of the data, which has {}", tensor.name, tensor.bytes,
                                               tensor.offset, available));
      tensor.offset += data_begin;
    }
    std::vector<const GgufTensor*> by_offset;
    for (const auto& tensor : tensors) by_offset.push_back(&tensor);
    std::sort(by_offset.begin(), by_offset.end(), [](const auto* x, const auto* y) { return x->offset < y->offset; });
    for (std::size_t i = 1; i < by_offset.size(); ++i)
      if (by_offset[i - 1]->offset + by_offset[i - 1]->bytes > by_offset[i]->offset)
        return invalid(by_offset[i]->offset, fmt::format("tensors {} and {} overlap", by_offset[i - 1]->name, by_offset[i]->name));
    return {};
  }

  const std::filesystem::path& path_;
  std::span<const std::byte> bytes_;
  std::uint64_t at_ = 0;
  std::uint64_t alignment_ = kAlignmentDefault;
};
}  // namespace

Result<Gguf> Gguf::open(const std::filesystem::path& path) {
  Gguf result;
  CULPRIT_TRY(result.file_, MappedFile::open(path));
  Reader reader(*result.file_);
  CULPRIT_CHECK(reader.read(result.metadata_, result.tensors_));
  return result;
}

const GgufTensor* Gguf::find(const std::string& name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& tensor) { return tensor.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

Result<double> Gguf::number(const std::string& key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return fail("gguf-invalid", fmt::format("metadata has no {}", key), path().string());
  if (const auto* value = std::get_if<std::uint64_t>(&found->second)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<std::int64_t>(&found->second)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<double>(&found->second)) return *value;
  return fail("gguf-invalid", fmt::format("metadata {} is not a number", key), path().string());
}

Result<std::string> Gguf::text(const std::string& key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return fail("gguf-invalid", fmt::format("metadata has no {}", key), path().string());
  if (const auto* value = std::get_if<std::string>(&found->second)) return *value;
  return fail("gguf-invalid", fmt::format("metadata {} is not a string", key), path().string());
}

Result<Weight> Gguf::weight(const std::string& name, const GgufReadFault& fault) const {
  const auto* tensor = find(name);
  if (tensor == nullptr) return fail("gguf-invalid", fmt::format("there is no tensor {} among {}", name, tensors_.size()), path().string());
  const auto blocks = file_->bytes().subspan(static_cast<std::size_t>(tensor->offset), static_cast<std::size_t>(tensor->bytes));
  auto weight = weight_from_blocks(*find_ggml_type(tensor->type), tensor->shape, file_, blocks, fault);
  if (!weight)
    return fail(weight.error().id, fmt::format("tensor {}: {}", name, weight.error().message),
                fmt::format("{} @ {}", path().string(), tensor->offset));
  return weight;
}

}  // namespace culprit
