#pragma once
// Trace, version 1: a folder with trace.json, taps.jsonl (append-only, a record a tensor) and step-NNNNNN.safetensors (written whole, then
// renamed). After a crash it is readable up to the last whole step. docs/trace.md.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
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
  Layout layout;              // as the engine had it
  Coordinates at;             // rows, tokens and slots of the step
  std::string hash;           // XXH3-128 of the values in logical order, in their dtype
  std::int64_t count = 0;
  double min = 0, max = 0;    // of finite values
  double l2 = 0;
  std::int64_t nans = 0, infinities = 0;
  std::string file, key;      // empty when only hashed
  std::string note;           // "", "replaced", "exact", "fault:F01" : what touched the tensor
};

[[nodiscard]] Json to_json(const TapRecord& record);
[[nodiscard]] Result<TapRecord> tap_record_from_json(const Json& json);

class TraceWriter {
 public:
  /// Creates the folder and trace.json with {schema, plan, hello, model}. Error ids: file-write.
  [[nodiscard]] static Result<TraceWriter> create(const std::filesystem::path& folder, const Json& header);
  /// Adds a tensor to the step being written; data is copied. hash_only keeps no values.
  void add(int step, const std::string& tap, const Tensor& tensor, const Coordinates& at, std::string note = {}, bool hash_only = false);
  /// Writes the step's safetensors, then its records. Error ids: file-write, engine-disk when the disk is full.
  [[nodiscard]] Result<void> end_step();
  /// Completes trace.json with totals and "complete": true.
  [[nodiscard]] Result<void> finish(const Json& totals);

 private:
  std::filesystem::path folder_;
  Json header_;
  int step_ = 0;
  int steps_written_ = 0;
  std::vector<std::pair<std::string, Tensor>> pending_tensors_;
  std::vector<TapRecord> pending_records_;
};

class Trace {
 public:
  /// Reads the whole steps; a torn last line of taps.jsonl or a missing step file ends the trace there and `complete` is false.
  /// Error ids: trace-invalid, file-missing.
  [[nodiscard]] static Result<Trace> open(const std::filesystem::path& folder);
  [[nodiscard]] const Json& header() const { return header_; }
  [[nodiscard]] bool complete() const { return complete_; }
  [[nodiscard]] int steps() const { return steps_; }
  [[nodiscard]] const std::vector<TapRecord>& records() const { return records_; }
  /// nullptr when it was not recorded.
  [[nodiscard]] const TapRecord* find(int step, const std::string& tap) const;
  /// The values, contiguous, as a view into the mapped step file. Error ids: trace-invalid.
  [[nodiscard]] Result<Tensor> tensor(const TapRecord& record) const;
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  Json header_;
  bool complete_ = false;
  int steps_ = 0;
  std::vector<TapRecord> records_;
  std::map<std::pair<int, std::string>, std::size_t> index_;
  std::map<std::string, std::shared_ptr<const Safetensors>> files_;
};

}  // namespace culprit
