#include "format/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "base/file.h"

namespace culprit {
namespace {
constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;  // of the data, from the file's begin

struct FormatName {
  DType dtype;
  std::string_view text;  // kind and bytes, without the byte order
};
constexpr FormatName kFormatNames[] = {{DType::f64, "f8"}, {DType::f32, "f4"}, {DType::f16, "f2"}, {DType::i64, "i8"},
                                       {DType::i32, "i4"}, {DType::u32, "u4"}, {DType::u8, "u1"},  {DType::boolean, "b1"}};

struct Header {
  std::string descr;
  bool fortran_order = false;
  Shape shape;
};

/// Reads the header, a Python dict literal with the keys descr, fortran_order and shape in any order. Each reader returns whether it
/// found what it wants; position() then tells where it stopped.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  std::optional<Header> parse() {
    Header header;
    int found = 0;
    if (!take('{')) return std::nullopt;
    while (!take('}')) {
      std::string key;
      if (!take_string(key) || !take(':')) return std::nullopt;
      const bool ok = key == "descr"           ? take_string(header.descr) && (found |= 1)
                      : key == "fortran_order" ? take_bool(header.fortran_order) && (found |= 2)
                      : key == "shape"         ? take_shape(header.shape) && (found |= 4)
                                               : false;
      if (!ok) return std::nullopt;
      if (!take(',') && peek() != '}') return std::nullopt;
    }
    if (peek() != '\0' || found != 7) return std::nullopt;
    return header;
  }
  [[nodiscard]] std::size_t position() const { return at_; }

 private:
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool take_string(std::string& out) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return false;
    const auto end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return false;
    out = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return true;
  }
  bool take_bool(bool& out) {
    peek();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        out = value;
        return true;
      }
    }
    return false;
  }
  bool take_count(std::int64_t& out) {
    if (peek() < '0' || peek() > '9') return false;
    out = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      if (__builtin_mul_overflow(out, 10, &out) || __builtin_add_overflow(out, text_[at_] - '0', &out)) return false;
    return true;
  }
  bool take_shape(Shape& out) {
    if (!take('(')) return false;
    out.clear();
    while (!take(')')) {
      std::int64_t n = 0;
      if (!take_count(n)) return false;
      out.push_back(n);
      if (!take(',') && peek() != ')') return false;
    }
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// '<' and '=' are little-endian here, '|' is for types of one byte.
std::optional<DType> parse_descr(std::string_view descr) {
  if (descr.empty()) return std::nullopt;
  const char order = descr[0];
  for (const auto& name : kFormatNames)
    if (descr.substr(1) == name.text && (order == '<' || order == '=' || (order == '|' && size_of(name.dtype) == 1))) return name.dtype;
  return std::nullopt;
}

Shape column_major_strides(const Shape& shape) {
  Shape reversed(shape.rbegin(), shape.rend());
  auto strides = row_major_strides(reversed);
  std::reverse(strides.begin(), strides.end());
  return strides;
}

std::string header_of(DType dtype, const Shape& shape) {
  const auto name = std::find_if(std::begin(kFormatNames), std::end(kFormatNames), [&](const auto& known) { return known.dtype == dtype; });
  auto header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}", size_of(dtype) == 1 ? '|' : '<', name->text,
                            fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  const auto prefix = kMagic.size() + 2 + 2;  // version, header length
  const auto padded = (prefix + header.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  header.resize(padded - prefix - 1, ' ');
  return header + '\n';
}
}  // namespace

Result<Tensor> read_npy(const std::filesystem::path& path) {
  CULPRIT_TRY(const auto file, MappedFile::open(path));
  const auto bytes = file->bytes();
  const auto invalid = [&](std::size_t offset, std::string message) {
    return fail("npy-invalid", std::move(message), fmt::format("{} @ {}", path.string(), offset));
  };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic)) return invalid(0, "expected the magic bytes of npy");
  const auto version_at = kMagic.size();
  if (text.size() < version_at + 2) return invalid(version_at, "expected 2 bytes of version");
  const int version = static_cast<unsigned char>(text[version_at]);
  if (version < 1 || version > 3) return invalid(version_at, fmt::format("expected version 1, 2 or 3, got {}", version));
  const auto length_at = version_at + 2;
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  if (text.size() < length_at + length_bytes) return invalid(length_at, fmt::format("expected {} bytes of header length", length_bytes));
  std::uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, text.data() + length_at, length_bytes);
  const auto header_at = length_at + length_bytes;
  if (header_bytes > text.size() - header_at)
    return invalid(length_at, fmt::format("header length {}, but {} bytes remain", header_bytes, text.size() - header_at));

  HeaderParser parser(text.substr(header_at, header_bytes));
  auto header = parser.parse();
  if (!header) return invalid(header_at + parser.position(), "header is not a dict of descr, fortran_order and shape");
  const auto dtype = parse_descr(header->descr);
  if (!dtype) return invalid(header_at, fmt::format("dtype {} is not supported", header->descr));
  const auto count = checked_count(header->shape);
  const auto data = bytes.subspan(header_at + header_bytes);
  std::int64_t expected = 0;
  if (!count || __builtin_mul_overflow(*count, static_cast<std::int64_t>(size_of(*dtype)), &expected))
    return invalid(header_at, fmt::format("shape {} has more elements than can be", to_string(header->shape)));
  if (static_cast<std::uint64_t>(expected) != data.size())
    return invalid(header_at + header_bytes, fmt::format("shape {} of {} needs {} bytes, {} remain", to_string(header->shape),
                                                         name_of(*dtype), expected, data.size()));
  auto strides = header->fortran_order ? column_major_strides(header->shape) : row_major_strides(header->shape);
  return Tensor::wrap(
      file, data,
      {.dtype = *dtype, .shape = std::move(header->shape), .strides = std::move(strides), .offset = 0, .storage_id = new_storage_id()});
}

Result<void> write_npy(const std::filesystem::path& path, const Tensor& tensor) {
  const auto dense = (tensor.dtype() == DType::bf16 ? tensor.cast(DType::f32) : tensor).contiguous();
  const auto header = header_of(dense.dtype(), dense.shape());
  // Version 1.0 holds headers below 64 KiB: some thousand dimensions.
  if (header.size() > std::numeric_limits<std::uint16_t>::max())
    return fail("file-write", fmt::format("a header of {} bytes does not fit npy 1.0", header.size()), path.string());
  const char prefix[] = {1, 0, static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  CULPRIT_TRY(auto writer, FileWriter::create(path));
  CULPRIT_CHECK(writer.append(kMagic));
  CULPRIT_CHECK(writer.append(std::string_view(prefix, sizeof(prefix))));
  CULPRIT_CHECK(writer.append(header));
  CULPRIT_CHECK(writer.append(dense.contiguous_bytes()));
  return writer.commit();
}

}  // namespace culprit
