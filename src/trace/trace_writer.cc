#include <fmt/format.h>

#include <set>
#include <system_error>

#include "base/file.h"
#include "base/hash.h"
#include "trace/format.h"
#include "trace/statistics.h"
#include "trace/trace.h"

namespace culprit {
namespace {

using namespace trace_format;

/// A path or note in no known encoding loses its odd bytes; the trace is not lost over them.
std::string text_of(const Json& json, int indent) { return json.dump(indent, ' ', false, Json::error_handler_t::replace); }

Error as_trace_error(Error error) {
  if (is_disk_full(error)) error.id = "engine-disk";
  return error;
}

Result<void> write_header(const std::filesystem::path& folder, const Json& header) {
  return write_file_whole(folder / kHeaderFile, text_of(header, 1) + "\n").map_error(as_trace_error);
}

bool is_trace_file(const std::string& name) { return name == kHeaderFile || name == kTapsFile || name.starts_with("step-"); }

Result<void> make_empty_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return fail("file-write", fmt::format("cannot create the folder: {}", error.message()), folder.string(), error.value());
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (is_trace_file(entry->path().filename().string())) return fail("file-write", "the folder holds a trace already", folder.string());
  if (error) return fail("file-write", fmt::format("cannot read the folder: {}", error.message()), folder.string(), error.value());
  return {};
}

}  // namespace

std::string trace_format::step_file_name(int step) { return fmt::format("step-{:06}.safetensors", step); }

Result<TraceWriter> TraceWriter::create(const std::filesystem::path& folder, const Json& header) {
  CULPRIT_CHECK(make_empty_folder(folder).map_error(as_trace_error));
  TraceWriter writer;
  writer.folder_ = folder;
  writer.header_ = {{"schema", kSchema}, {"version", kVersion}};
  for (const auto& [key, value] : header.items())
    if (key != "schema" && key != "version") writer.header_[key] = value;
  writer.header_["complete"] = false;
  CULPRIT_CHECK(write_header(folder, writer.header_));
  CULPRIT_CHECK(append_file(folder / kTapsFile, "").map_error(as_trace_error));
  return writer;
}

void TraceWriter::add(int step, const std::string& tap, const Tensor& tensor, const Coordinates& at, std::string note, bool hash_only) {
  if (failed_) return;
  const auto values = hash_only ? tensor.contiguous() : tensor.copy();
  const auto statistics = statistics_of(values);
  pending_records_.push_back({.step = step,
                              .tap = tap,
                              .layout = tensor.layout(),
                              .at = at,
                              .hash = xxh3_128(values.contiguous_bytes()),
                              .count = statistics.count,
                              .min = statistics.min,
                              .max = statistics.max,
                              .l2 = statistics.l2,
                              .nans = statistics.nans,
                              .infinities = statistics.infinities,
                              .file = hash_only ? "" : step_file_name(step),
                              .key = hash_only ? "" : tap,
                              .note = std::move(note)});
  if (!hash_only) pending_tensors_.emplace_back(tap, values);
}

Result<void> TraceWriter::check_step() const {
  const int step = pending_records_.front().step;
  if (step <= last_step_) return fail("internal", fmt::format("step {} comes after step {}", step, last_step_), folder_.string());
  std::set<std::string_view> taps;
  for (const auto& record : pending_records_) {
    if (record.step != step)
      return fail("internal", fmt::format("tap {} of step {} in step {}", record.tap, record.step, step), folder_.string());
    if (!taps.insert(record.tap).second)
      return fail("internal", fmt::format("tap {} twice in step {}", record.tap, step), folder_.string());
  }
  return {};
}

Result<void> TraceWriter::write_step() {
  CULPRIT_CHECK(check_step());
  const int step = pending_records_.front().step;
  std::string lines;
  for (const auto& record : pending_records_) {
    auto json = to_json(record);
    json[kRecordsOfStep] = pending_records_.size();
    const auto line = text_of(json, -1);
    if (line.size() >= kLineBytesMax)
      return fail("file-write", fmt::format("the record of tap {} has {} bytes; the limit is {}", record.tap, line.size(), kLineBytesMax),
                  (folder_ / kTapsFile).string());
    lines += line;
    lines += '\n';
  }
  const auto file = folder_ / step_file_name(step);
  if (!pending_tensors_.empty())
    CULPRIT_CHECK(write_safetensors(file, pending_tensors_, {{"schema", std::string(kSchema)}, {"step", std::to_string(step)}}));
  auto appended = append_file(folder_ / kTapsFile, lines);
  if (!appended) {
    std::error_code ignored;  // a step file without records is no part of the trace; removing it gives the room back
    std::filesystem::remove(file, ignored);
    return appended;
  }
  last_step_ = step;
  ++steps_written_;
  records_written_ += static_cast<std::int64_t>(pending_records_.size());
  return {};
}

Result<void> TraceWriter::end_step() {
  if (failed_) return tl::unexpected(*failed_);
  if (pending_records_.empty()) return {};
  auto written = write_step().map_error(as_trace_error);
  pending_records_.clear();
  pending_tensors_.clear();
  if (!written) failed_ = written.error();
  return written;
}

Result<void> TraceWriter::finish(const Json& totals) {
  CULPRIT_CHECK(end_step());
  if (failed_) return tl::unexpected(*failed_);
  auto header = header_;
  header["totals"] = totals;
  header["steps"] = steps_written_;
  header["records"] = records_written_;
  header["complete"] = true;
  return write_header(folder_, header);
}

}  // namespace culprit
