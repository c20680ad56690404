#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/fields.h"
#include "trace/trace.h"

namespace culprit {
namespace {

constexpr std::size_t kRunCountMin = 3;                     // shorter runs are shorter in full
constexpr std::int64_t kPlacesMax = std::int64_t{1} << 24;  // positions and slots of one record: a line of runs could ask for any number
constexpr std::size_t kHashDigits = 32;

/// Numbers as they are, and runs of equal steps as {"start": s, "count": n, "step": d}; a step of 1 is left out.
Json runs_of(const std::vector<std::int64_t>& values) {
  Json items = Json::array();
  for (std::size_t begin = 0; begin < values.size();) {
    std::size_t end = begin + 1;
    const auto step = end < values.size() ? values[end] - values[begin] : 0;
    while (end < values.size() && values[end] - values[end - 1] == step) ++end;
    if (end - begin < kRunCountMin) {
      items.push_back(values[begin++]);
      continue;
    }
    Json run = {{"start", values[begin]}, {"count", end - begin}};
    if (step != 1) run["step"] = step;
    items.push_back(std::move(run));
    begin = end;
  }
  return items;
}

Json runs_of(const std::vector<std::vector<std::int64_t>>& rows) {
  Json json = Json::array();
  for (const auto& row : rows) json.push_back(runs_of(row));
  return json;
}

Result<void> append_run(const Json& item, std::int64_t& places_left, std::vector<std::int64_t>& out) {
  std::int64_t start = 0, count = 1, step = 1;
  if (item.is_object())
    CULPRIT_CHECK(Fields(item, "run", "trace-invalid").required("start", start).required("count", count).optional("step", step).done());
  else if (!read_json(item, start))
    return fail("trace-invalid", "a position or slot is neither a number nor a run");
  if (count < 0 || count > places_left)
    return fail("trace-invalid", fmt::format("a run of {} exceeds the limit of {} places", count, kPlacesMax));
  places_left -= count;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t value = 0;
    if (__builtin_mul_overflow(i, step, &value) || __builtin_add_overflow(start, value, &value))
      return fail("trace-invalid", "a run leaves the range of 64 bits");
    out.push_back(value);
  }
  return {};
}

Result<std::vector<std::vector<std::int64_t>>> rows_from(const Json* json, const char* name, std::int64_t& places_left) {
  if (json == nullptr || !json->is_array()) return fail("trace-invalid", fmt::format("coordinates: '{}' is not a list of rows", name));
  std::vector<std::vector<std::int64_t>> rows;
  for (const auto& row : *json) {
    if (!row.is_array()) return fail("trace-invalid", fmt::format("coordinates: a row of '{}' is not a list", name));
    auto& out = rows.emplace_back();
    for (const auto& item : row) CULPRIT_CHECK(append_run(item, places_left, out));
  }
  return rows;
}

Result<Coordinates> coordinates_from(const Json& json) {
  Coordinates at;
  Fields fields(json, "coordinates", "trace-invalid");
  fields.required("sequence", at.sequence);
  auto places_left = kPlacesMax;
  const auto* positions = fields.find("position");
  const auto* slots = fields.find("slot");
  CULPRIT_CHECK(fields.done());
  CULPRIT_TRY(at.position, rows_from(positions, "position", places_left));
  CULPRIT_TRY(at.slot, rows_from(slots, "slot", places_left));
  return at;
}

/// A string, because readers that keep numbers as doubles lose digits of an address.
Result<std::uint64_t> storage_id_from(std::string_view text) {
  std::uint64_t id = 0;
  if (!text.starts_with("0x")) return fail("trace-invalid", fmt::format("storage_id '{}' is not of the form 0x1f", text));
  const auto* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + 2, end, id, 16);
  if (error != std::errc{} || rest != end) return fail("trace-invalid", fmt::format("storage_id '{}' is not of the form 0x1f", text));
  return id;
}

bool is_hash(std::string_view text) {
  return text.size() == kHashDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

/// Only a plain name: a trace never reads outside its folder.
bool is_plain_name(std::string_view name) {
  return name.find('/') == name.npos && name.find('\\') == name.npos && name != ".." && name != ".";
}

Result<void> check(const TapRecord& record) {
  const auto invalid = [&](std::string message) { return fail("trace-invalid", std::move(message), record.tap); };
  const auto& layout = record.layout;
  if (record.step < 0) return invalid(fmt::format("step {} is negative", record.step));
  if (record.tap.empty()) return invalid("a record names no tap");
  const auto count = checked_count(layout.shape);
  if (!count) return invalid(fmt::format("shape {} is impossible", to_string(layout.shape)));
  if (*count != record.count)
    return invalid(fmt::format("shape {} has {} elements, count is {}", to_string(layout.shape), *count, record.count));
  if (layout.strides.size() != layout.shape.size())
    return invalid(fmt::format("{} strides for {} dimensions", layout.strides.size(), layout.shape.size()));
  if (record.nans < 0 || record.infinities < 0 || record.nans > record.count || record.infinities > record.count - record.nans)
    return invalid(fmt::format("{} nans and {} infinities among {} elements", record.nans, record.infinities, record.count));
  if (!is_hash(record.hash)) return invalid(fmt::format("hash '{}' is not {} hex digits", record.hash, kHashDigits));
  if (!is_plain_name(record.file)) return invalid(fmt::format("file '{}' is not a plain name", record.file));
  if (record.file.empty() != record.key.empty()) return invalid("file and key go together");
  return {};
}

}  // namespace

Json to_json(const TapRecord& record) {
  const auto& layout = record.layout;
  return {{"step", record.step},
          {"tap", record.tap},
          {"dtype", name_of(layout.dtype)},
          {"shape", layout.shape},
          {"strides", layout.strides},
          {"offset", layout.offset},
          {"storage_id", fmt::format("{:#x}", layout.storage_id)},
          {"at", {{"sequence", record.at.sequence}, {"position", runs_of(record.at.position)}, {"slot", runs_of(record.at.slot)}}},
          {"hash", record.hash},
          {"count", record.count},
          {"min", json_number(record.min)},
          {"max", json_number(record.max)},
          {"l2", json_number(record.l2)},
          {"nans", record.nans},
          {"infinities", record.infinities},
          {"file", record.file},
          {"key", record.key},
          {"note", record.note}};
}

Result<TapRecord> tap_record_from_json(const Json& json) {
  TapRecord record;
  std::string dtype, storage_id;
  Fields fields(json, "record", "trace-invalid");
  fields.required("step", record.step)
      .required("tap", record.tap)
      .required("dtype", dtype)
      .required("shape", record.layout.shape)
      .required("strides", record.layout.strides)
      .required("offset", record.layout.offset)
      .required("storage_id", storage_id)
      .required("hash", record.hash)
      .required("count", record.count)
      .required("min", record.min)
      .required("max", record.max)
      .required("l2", record.l2)
      .required("nans", record.nans)
      .required("infinities", record.infinities)
      .required("file", record.file)
      .required("key", record.key)
      .optional("note", record.note);
  const auto* at = fields.find("at");
  CULPRIT_CHECK(fields.done(true));
  if (at == nullptr) return fail("trace-invalid", "record: field 'at' is missing", record.tap);
  const auto parsed = parse_dtype(dtype);
  if (!parsed) return fail("trace-invalid", parsed.error().message, record.tap);
  record.layout.dtype = *parsed;
  CULPRIT_TRY(record.layout.storage_id, storage_id_from(storage_id));
  CULPRIT_TRY(record.at, coordinates_from(*at));
  CULPRIT_CHECK(check(record));
  return record;
}

}  // namespace culprit
