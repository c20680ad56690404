#pragma once
// The ledger: every run is an entry with its full settings. A conclusion cites entries, and a contrast of two entries that differ in more
// than one factor is refused.
#include <filesystem>
#include <map>
#include <span>
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
  std::string purpose;                            // why it was run
  std::map<std::string, std::string> other = {};  // factors of a run that is no decode, such as how a probe reads
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

/// What a run must have for the absence of a difference in it to say anything.
struct Ability {
  std::string_view name;  // "rows"
  std::string_view what;  // "two distinct rows or more: with one row, or equal ones, a fault of batch rows cannot show"
  bool (*has)(const RunPlan&);
};
[[nodiscard]] std::span<const Ability> abilities();

class Ledger {
 public:
  /// Of a verdict document's `runs`. Error ids: verdict-invalid.
  [[nodiscard]] static Result<Ledger> from_json(const Json& runs);

  /// Returns the id given to the entry.
  int add(Entry entry);
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  /// Error ids: never-run.
  [[nodiscard]] Result<const Entry*> entry(int id) const;
  /// The one factor in which two runs differ. Error ids: never-run; confounded (names the factors) when there are several or none;
  /// library-changed when the same engine's library has another hash.
  [[nodiscard]] Result<std::string> contrast(int expected, int actual) const;
  /// Entries that have all of these factors: {"cache": "padded", "variant sdpa": "composed"}. Error ids: never-run when none has all of them
  /// (says which runs have each); factor-unknown when no entry has a factor of that name.
  [[nodiscard]] Result<std::vector<int>> having(const std::map<std::string, std::string>& wanted) const;
  /// Error ids: never-run; cannot-show when none of these runs could have shown it, with what it would take.
  [[nodiscard]] Result<void> can_show(const std::vector<int>& entries, const Ability& ability) const;
  [[nodiscard]] Json to_json() const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace culprit
