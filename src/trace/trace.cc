#include "trace/trace.h"

#include <fmt/format.h>

#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/fields.h"
#include "base/file.h"
#include "base/hash.h"
#include "trace/format.h"

namespace culprit {
namespace {

using namespace trace_format;

struct Line {
  TapRecord record;
  std::size_t of = 0;
};

Result<Line> line_from(std::string_view text) {
  if (text.size() >= kLineBytesMax)
    return fail("trace-invalid", fmt::format("a line of {} bytes; the limit is {}", text.size(), kLineBytesMax));
  CULPRIT_TRY(const auto json, parse_json(text));
  Line line;
  CULPRIT_TRY(line.record, tap_record_from_json(json));
  CULPRIT_CHECK(Fields(json, "record", "trace-invalid").required(kRecordsOfStep, line.of).done(true));
  return line;
}

}  // namespace

Result<Trace> Trace::open(const std::filesystem::path& folder) {
  Trace trace;
  trace.folder_ = folder;
  CULPRIT_CHECK(trace.read_header());
  trace.read_steps();
  return trace;
}

Result<void> Trace::read_header() {
  std::error_code error;
  if (!std::filesystem::is_directory(folder_, error)) return fail("file-missing", "there is no such trace folder", folder_.string());
  const auto path = folder_ / kHeaderFile;
  const auto invalid = [&](std::string message) { return fail("trace-invalid", std::move(message), path.string()); };
  auto json = read_json_file(path);
  if (!json) return invalid(json.error().message);
  header_ = std::move(*json);
  std::string schema;
  int version = 0;
  const auto read = Fields(header_, "trace", "trace-invalid")
                        .required("schema", schema)
                        .required("version", version)
                        .required("complete", complete_)
                        .done(true);
  if (!read) return invalid(read.error().message);
  if (schema != kSchema) return invalid(fmt::format("schema is '{}', expected '{}'", schema, kSchema));
  if (version != kVersion) return invalid(fmt::format("version is {}, expected {}", version, kVersion));
  return {};
}

/// Takes whole steps until something is not as it should be; then says what in ended_by_.
void Trace::read_steps() {
  const bool finished = complete_;
  complete_ = false;
  const auto text = read_file(folder_ / kTapsFile);
  if (!text) {
    ended_by_ = to_string(text.error());
    return;
  }
  std::string_view rest = *text;
  std::vector<TapRecord> step;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const auto end = rest.find('\n');
    const auto stop = [&](std::string_view why) { ended_by_ = fmt::format("{} line {}: {}", kTapsFile, number, why); };
    if (end == rest.npos) return stop(fmt::format("torn after {} bytes", rest.size()));
    auto line = line_from(rest.substr(0, end));
    rest.remove_prefix(end + 1);
    if (!line) return stop(line.error().message);
    if (!step.empty() && line->record.step != step.front().step)
      return stop(fmt::format("step {} begins before step {} is whole", line->record.step, step.front().step));
    step.push_back(std::move(line->record));
    if (step.size() < line->of) continue;
    if (step.size() > line->of) return stop(fmt::format("record {} of {} of its step", step.size(), line->of));
    if (const auto accepted = accept_step(std::exchange(step, {})); !accepted) return stop(to_string(accepted.error()));
  }
  if (!step.empty()) {
    ended_by_ = fmt::format("step {} has {} records, not all", step.front().step, step.size());
  } else if (!finished) {
    ended_by_ = "the run did not finish";
  } else {
    std::int64_t steps = -1, records = -1;
    const auto read = Fields(header_, "trace", "trace-invalid").required("steps", steps).required("records", records).done(true);
    complete_ = read && steps == steps_ && records == static_cast<std::int64_t>(records_.size());
    if (!complete_)
      ended_by_ = fmt::format("{} steps and {} records, {} says {} and {}", steps_, records_.size(), kHeaderFile, steps, records);
  }
}

/// Opens the step's file and checks that it holds what the records say; only then the step belongs to the trace.
Result<void> Trace::accept_step(std::vector<TapRecord> step) {
  if (!records_.empty() && step.front().step <= records_.back().step)
    return fail("trace-invalid", fmt::format("step {} comes after step {}", step.front().step, records_.back().step));
  std::set<std::string_view> taps;
  std::map<std::string, std::shared_ptr<const Safetensors>> opened;
  for (const auto& record : step) {
    if (!taps.insert(record.tap).second) return fail("trace-invalid", fmt::format("tap {} twice in step {}", record.tap, record.step));
    if (record.file.empty()) continue;
    auto& file = opened[record.file];
    if (file == nullptr) {
      CULPRIT_TRY(auto safetensors, Safetensors::open(folder_ / record.file));
      file = std::make_shared<const Safetensors>(std::move(safetensors));
    }
    CULPRIT_TRY(const auto tensor, file->tensor(record.key));
    if (tensor.dtype() != record.layout.dtype || tensor.shape() != record.layout.shape)
      return fail("trace-invalid",
                  fmt::format("the record says {} {}, the file holds {} {}", name_of(record.layout.dtype), to_string(record.layout.shape),
                              name_of(tensor.dtype()), to_string(tensor.shape())),
                  record.file + ": " + record.key);
  }
  files_.merge(opened);
  ++steps_;
  for (auto& record : step) {
    index_[{record.step, record.tap}] = records_.size();
    records_.push_back(std::move(record));
  }
  return {};
}

const TapRecord* Trace::find(int step, const std::string& tap) const {
  const auto found = index_.find({step, tap});
  return found == index_.end() ? nullptr : &records_[found->second];
}

Result<Tensor> Trace::tensor(const TapRecord& record) const {
  const auto where = fmt::format("{}: step {}, {}", folder_.string(), record.step, record.tap);
  if (record.file.empty()) return fail("trace-invalid", "only its hash was recorded, no values", where);
  const auto file = files_.find(record.file);
  if (file == files_.end()) return fail("trace-invalid", fmt::format("{} is no file of this trace", record.file), where);
  auto tensor = file->second->tensor(record.key);
  if (!tensor) return fail("trace-invalid", tensor.error().message, where);
  return tensor;
}

Result<void> Trace::verify(const TapRecord& record) const {
  CULPRIT_TRY(const auto values, tensor(record));
  const auto actual = xxh3_128(values.contiguous_bytes());
  if (actual == record.hash) return {};
  return fail("trace-invalid", fmt::format("the values hash to {}, the record says {}", actual, record.hash),
              fmt::format("{}: step {}, {}", folder_.string(), record.step, record.tap));
}

}  // namespace culprit
