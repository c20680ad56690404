#include "format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

namespace culprit {
namespace {
constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kHeaderBytesMax = 100'000'000;  // the limit of the reference implementation
constexpr const char* kMetadataKey = "__metadata__";

struct FormatName {
  DType dtype;
  std::string_view text;
};
constexpr FormatName kFormatNames[] = {{DType::f64, "F64"},   {DType::f32, "F32"}, {DType::f16, "F16"},
                                       {DType::bf16, "BF16"}, {DType::i64, "I64"}, {DType::i32, "I32"},
                                       {DType::u32, "U32"},   {DType::u8, "U8"},   {DType::boolean, "BOOL"}};

std::string_view format_name_of(DType dtype) {
  return std::find_if(std::begin(kFormatNames), std::end(kFormatNames), [&](const auto& name) { return name.dtype == dtype; })->text;
}

std::optional<DType> parse_format_name(std::string_view text) {
  for (const auto& name : kFormatNames)
    if (name.text == text) return name.dtype;
  return std::nullopt;
}

/// What one entry of the header says, checked against itself but not yet against the other entries.
struct Entry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  // both from the begin of the data
};

class HeaderReader {
 public:
  HeaderReader(const std::filesystem::path& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  /// Entries in the header's order.
  Result<std::vector<Entry>> read(std::map<std::string, std::string>& metadata) {
    CULPRIT_CHECK(read_length());
    CULPRIT_TRY(const auto header, parse());
    std::vector<Entry> entries;
    for (const auto& key : keys_) {
      const auto& value = header.at(key);
      if (key == kMetadataKey) {
        CULPRIT_CHECK(read_metadata(value, metadata));
        continue;
      }
      CULPRIT_TRY(auto entry, read_entry(key, value));
      entries.push_back(std::move(entry));
    }
    CULPRIT_CHECK(check_cover(entries));
    return entries;
  }
  [[nodiscard]] std::size_t data_begin() const { return kLengthBytes + header_bytes_; }

 private:
  [[nodiscard]] tl::unexpected<Error> invalid(std::size_t offset, std::string message) const {
    return fail("safetensors-invalid", std::move(message), fmt::format("{} @ {}", path_.string(), offset));
  }
  [[nodiscard]] std::size_t data_bytes() const { return bytes_.size() - data_begin(); }

  Result<void> read_length() {
    if (bytes_.size() < kLengthBytes)
      return invalid(0, fmt::format("expected {} bytes of header length, {} remain", kLengthBytes, bytes_.size()));
    std::uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), kLengthBytes);
    if (length > kHeaderBytesMax) return invalid(0, fmt::format("header length {} exceeds {}", length, kHeaderBytesMax));
    if (length > bytes_.size() - kLengthBytes)
      return invalid(0, fmt::format("header length {}, but {} bytes remain", length, bytes_.size() - kLengthBytes));
    header_bytes_ = static_cast<std::size_t>(length);
    return {};
  }

  Result<nlohmann::json> parse() {
    const auto* text = reinterpret_cast<const char*>(bytes_.data()) + kLengthBytes;
    std::set<std::string> seen;
    std::string twice;
    // Keeps the order of the keys, and finds those given twice, which the parser itself would silently merge.
    const auto on_event = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
      if (depth == 1 && event == nlohmann::json::parse_event_t::key) {
        auto key = value.get<std::string>();
        if (seen.insert(key).second)
          keys_.push_back(std::move(key));
        else
          twice = std::move(key);
      }
      return true;
    };
    try {
      auto header = nlohmann::json::parse(text, text + header_bytes_, on_event);
      if (!header.is_object()) return invalid(kLengthBytes, fmt::format("header is not an object but {}", header.type_name()));
      if (!twice.empty()) return invalid(kLengthBytes, fmt::format("header names {} twice", twice));
      return header;
    } catch (const nlohmann::json::parse_error& error) {
      return invalid(kLengthBytes + error.byte, "header is not JSON");
    } catch (const nlohmann::json::exception& error) {
      return invalid(kLengthBytes, fmt::format("header is not JSON: {}", error.what()));
    }
  }

  Result<void> read_metadata(const nlohmann::json& value, std::map<std::string, std::string>& metadata) const {
    if (!value.is_object()) return invalid(kLengthBytes, fmt::format("{} is not an object but {}", kMetadataKey, value.type_name()));
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string())
        return invalid(kLengthBytes, fmt::format("{}: {} is not a string but {}", kMetadataKey, key, text.type_name()));
      metadata[key] = text.get<std::string>();
    }
    return {};
  }

  Result<Entry> read_entry(const std::string& name, const nlohmann::json& value) const {
    const auto bad = [&](std::string_view what) { return invalid(kLengthBytes, fmt::format("tensor {}: {}", name, what)); };
    const auto is_count_list = [](const nlohmann::json& list) {
      return list.is_array() && std::all_of(list.begin(), list.end(), [](const auto& n) { return n.is_number_unsigned(); });
    };
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets"))
      return bad("expected an object with dtype, shape and data_offsets");
    const auto& shape = value.at("shape");
    const auto& offsets = value.at("data_offsets");
    if (!value.at("dtype").is_string()) return bad("dtype is not a string");
    if (!is_count_list(shape)) return bad("shape is not a list of counts");
    if (!is_count_list(offsets) || offsets.size() != 2) return bad("data_offsets is not a pair of counts");

    Entry entry{
        .name = name, .dtype = DType::f32, .shape = {}, .begin = offsets[0].get<std::uint64_t>(), .end = offsets[1].get<std::uint64_t>()};
    if (entry.begin > entry.end || entry.end > data_bytes())
      return bad(fmt::format("data_offsets [{}, {}] reach outside the data of {} bytes", entry.begin, entry.end, data_bytes()));
    const auto where = data_begin() + static_cast<std::size_t>(entry.begin);
    const auto dtype_name = value.at("dtype").get<std::string>();
    const auto dtype = parse_format_name(dtype_name);
    if (!dtype) return invalid(where, fmt::format("tensor {}: dtype {} is not supported", name, dtype_name));
    entry.dtype = *dtype;
    for (const auto& n : shape) entry.shape.push_back(static_cast<std::int64_t>(n.get<std::uint64_t>()));  // beyond 2^63 becomes negative
    const auto count = checked_count(entry.shape);
    std::uint64_t expected = 0;
    if (!count || __builtin_mul_overflow(static_cast<std::uint64_t>(*count), size_of(entry.dtype), &expected))
      return invalid(where, fmt::format("tensor {}: shape {} has more elements than can be", name, shape.dump()));
    if (expected != entry.end - entry.begin)
      return invalid(where, fmt::format("tensor {}: {} {} needs {} bytes, data_offsets give {}", name, dtype_name, to_string(entry.shape),
                                        expected, entry.end - entry.begin));
    return entry;
  }

  /// The tensors, in whatever order, must fill the data without gap or overlap: the format says so, and it catches truncation.
  Result<void> check_cover(const std::vector<Entry>& entries) const {
    std::vector<const Entry*> by_offset;
    for (const auto& entry : entries) by_offset.push_back(&entry);
    std::sort(by_offset.begin(), by_offset.end(),
              [](const Entry* x, const Entry* y) { return std::pair(x->begin, x->end) < std::pair(y->begin, y->end); });
    std::uint64_t covered = 0;
    for (const auto* entry : by_offset) {
      if (entry->begin != covered)
        return invalid(data_begin() + static_cast<std::size_t>(covered),
                       fmt::format("tensor {} begins at {} of the data, expected {}", entry->name, entry->begin, covered));
      covered = entry->end;
    }
    if (covered != data_bytes())
      return invalid(data_begin() + static_cast<std::size_t>(covered),
                     fmt::format("the tensors cover {} of {} bytes of data", covered, data_bytes()));
    return {};
  }

  const std::filesystem::path& path_;
  std::span<const std::byte> bytes_;
  std::size_t header_bytes_ = 0;
  std::vector<std::string> keys_;
};

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

/// The JSON header, padded with spaces so that the data begins at a multiple of 8.
std::string header_of(const std::vector<std::pair<std::string, Tensor>>& tensors, const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  const auto comma = [&] {
    if (header.back() != '{') header += ',';
  };
  if (!metadata.empty()) {
    header += fmt::format("\"{}\":{{", kMetadataKey);
    for (const auto& [key, value] : metadata) {
      comma();
      header += quoted(key) + ":" + quoted(value);
    }
    header += '}';
  }
  std::uint64_t begin = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto end = begin + static_cast<std::uint64_t>(tensor.count()) * size_of(tensor.dtype());
    comma();
    header += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}", quoted(name), format_name_of(tensor.dtype()),
                          to_string(tensor.shape()), begin, end);
    begin = end;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}
}  // namespace

Result<Safetensors> Safetensors::open(const std::filesystem::path& path) {
  CULPRIT_TRY(const auto file, MappedFile::open(path));
  HeaderReader reader(path, file->bytes());
  Safetensors result;
  result.path_ = path;
  CULPRIT_TRY(auto entries, reader.read(result.metadata_));
  const auto data = file->bytes().subspan(reader.data_begin());
  for (auto& entry : entries) {
    auto strides = row_major_strides(entry.shape);
    const auto bytes = data.subspan(static_cast<std::size_t>(entry.begin), static_cast<std::size_t>(entry.end - entry.begin));
    CULPRIT_TRY(auto tensor, Tensor::wrap(file, bytes,
                                          {.dtype = entry.dtype,
                                           .shape = std::move(entry.shape),
                                           .strides = std::move(strides),
                                           .offset = 0,
                                           .storage_id = new_storage_id()}));
    result.tensors_.emplace(entry.name, std::move(tensor));
    result.names_.push_back(std::move(entry.name));
  }
  return result;
}

Result<Tensor> Safetensors::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    return fail("safetensors-invalid", fmt::format("there is no tensor {} among {}", name, tensors_.size()), path_.string());
  return found->second;
}

Result<void> write_safetensors(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                               const std::map<std::string, std::string>& metadata) {
#ifndef NDEBUG
  std::set<std::string> names{kMetadataKey};
  for (const auto& [name, tensor] : tensors) assert(names.insert(name).second && "a name given twice, or reserved");
#endif
  const auto header = header_of(tensors, metadata);
  const auto length = static_cast<std::uint64_t>(header.size());
  CULPRIT_TRY(auto writer, FileWriter::create(path));
  CULPRIT_CHECK(writer.append(std::as_bytes(std::span(&length, 1))));
  CULPRIT_CHECK(writer.append(header));
  for (const auto& [name, tensor] : tensors) CULPRIT_CHECK(writer.append(tensor.contiguous().contiguous_bytes()));
  return writer.commit();
}

}  // namespace culprit
