#pragma once
// The ledger: every run is an entry with its full settings. A conclusion cites entries, and a contrast of two entries that differ in more
// than one factor is refused.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/plan.h"

namespace culprit {

struct Entry {
  int id = 0;
  std::string engine;  // "mlx@0.29.4"
  std::string library_sha256;
  LoadPlan load;
  RunPlan plan;
  std::filesystem::path trace;
  std::string purpose;  // why it was run
  double seconds = 0;
};

/// A run that the engine did not finish; it is no entry.
struct BrokenRun {
  std::string arm;              // the plan's name
  std::filesystem::path trace;  // whole up to last_step
  int steps = 0;                // of the plan
  int steps_whole = 0;
  int last_step = -1;  // the last whole one; -1 when none is
  /// "arm 'batch', after step 1 (2 of 3 steps are whole)"
  [[nodiscard]] std::string text() const;
};

/// The settings of an entry, factor by factor, as text. A sequence's token ids are a factor of their own, so a row alone and the same row
/// in a batch differ in `rows` only.
[[nodiscard]] std::map<std::string, std::string> factors(const Entry& entry);
/// Names of the factors in which two entries differ.
[[nodiscard]] std::vector<std::string> differing_factors(const Entry& expected, const Entry& actual);

class Ledger {
 public:
  /// Returns the id given to the entry.
  int add(Entry entry);
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  /// Error ids: never-run.
  [[nodiscard]] Result<const Entry*> entry(int id) const;
  /// The one factor in which two runs differ. Error ids: never-run; confounded (names the factors) when there are several or none;
  /// library-changed when the same engine's library has another hash.
  [[nodiscard]] Result<std::string> contrast(int expected, int actual) const;
  [[nodiscard]] Json to_json() const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace culprit
