#pragma once
// Trace, version 1: a folder with trace.json, taps.jsonl (append-only, a record a tensor) and step-NNNNNN.safetensors (written whole, then
// renamed). After a crash it is readable up to the last whole step. docs/trace.md.
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "format/safetensors.h"
#include "tensor/coordinates.h"
#include "tensor/tensor.h"

namespace culprit {

struct TapRecord {
  int step = 0;
  std::string tap;
  Layout layout;            // as the engine had it
  Coordinates at;           // rows, tokens and slots of the step
  std::string hash;         // XXH3-128 of the values in logical order, in their dtype
  std::int64_t count = 0;   // of all elements
  double min = 0, max = 0;  // of finite values; NaN when there are none
  double l2 = 0;            // of finite values
  std::int64_t nans = 0, infinities = 0;
  std::string file, key;  // empty when only hashed
  std::string note;       // "", "replaced", "exact", "kept", "fault:F01" : what touched the tensor
};

/// Coordinates are written in runs. docs/trace.md has the fields.
[[nodiscard]] Json to_json(const TapRecord& record);
/// Fields that it does not know are left to later writers of version 1. Error ids: trace-invalid.
[[nodiscard]] Result<TapRecord> tap_record_from_json(const Json& json);

/// Writes a trace step by step. After an error nothing more is written and every call returns that error, so a trace has no gaps.
class TraceWriter {
 public:
  /// Creates the folder, trace.json with {schema, version, ..header, complete: false} and an empty taps.jsonl. Refuses a folder that holds
  /// a trace. Error ids: file-write, engine-disk.
  [[nodiscard]] static Result<TraceWriter> create(const std::filesystem::path& folder, const Json& header);
  /// Adds a tensor to the step being written; data is copied. hash_only keeps no values.
  void add(int step, const std::string& tap, const Tensor& tensor, const Coordinates& at, std::string note = {}, bool hash_only = false);
  /// Writes the step's safetensors, then its records; a step without tensors leaves nothing. Steps increase, and a step has each tap once.
  /// Error ids: file-write, engine-disk when the disk, a quota or a file size limit is full, internal when the step breaks those rules.
  [[nodiscard]] Result<void> end_step();
  /// Completes trace.json with totals, the numbers of steps and records, and "complete": true. Error ids: as end_step.
  [[nodiscard]] Result<void> finish(const Json& totals);

 private:
  [[nodiscard]] Result<void> write_step();
  [[nodiscard]] Result<void> check_step() const;

  std::filesystem::path folder_;
  Json header_;
  int last_step_ = -1;
  std::int64_t steps_written_ = 0;
  std::int64_t records_written_ = 0;
  std::vector<std::pair<std::string, Tensor>> pending_tensors_;
  std::vector<TapRecord> pending_records_;
  std::optional<Error> failed_;
};

/// A trace, read up to its last whole step.
class Trace {
 public:
  /// A torn or garbled line of taps.jsonl, or a step file that is missing, truncated or does not hold what its records say, ends the trace
  /// before that step, and `complete` is false. Error ids: file-missing when there is no folder, trace-invalid when trace.json is
  /// unreadable.
  [[nodiscard]] static Result<Trace> open(const std::filesystem::path& folder);
  [[nodiscard]] const Json& header() const { return header_; }
  [[nodiscard]] bool complete() const { return complete_; }
  /// Why it is not complete: which line or file ended it; empty when it is.
  [[nodiscard]] const std::string& ended_by() const { return ended_by_; }
  /// Number of whole steps recorded; their numbers stand in the records.
  [[nodiscard]] int steps() const { return steps_; }
  [[nodiscard]] const std::vector<TapRecord>& records() const { return records_; }
  /// nullptr when it was not recorded.
  [[nodiscard]] const TapRecord* find(int step, const std::string& tap) const;
  /// The values, contiguous, as a view into the mapped step file. Error ids: trace-invalid.
  [[nodiscard]] Result<Tensor> tensor(const TapRecord& record) const;
  /// Recomputes the hash of the record's values. Error ids: trace-invalid, with both hashes, or when the record has no values to check.
  [[nodiscard]] Result<void> verify(const TapRecord& record) const;
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  [[nodiscard]] Result<void> read_header();
  void read_steps();
  [[nodiscard]] Result<void> accept_step(std::vector<TapRecord> step);

  std::filesystem::path folder_;
  Json header_;
  bool complete_ = false;
  std::string ended_by_;
  int steps_ = 0;
  std::vector<TapRecord> records_;
  std::map<std::pair<int, std::string>, std::size_t> index_;
  std::map<std::string, std::shared_ptr<const Safetensors>> files_;
};

}  // namespace culprit
