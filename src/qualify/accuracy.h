#pragma once
// What a campaign says of culprit's accuracy, for people and for programs.
#include <string>
#include <utility>
#include <vector>

#include "qualify/campaign.h"

namespace culprit {

/// Counts of a group of cases with faults.
struct Tally {
  int cases = 0;
  int inconclusive = 0;  // truly: nothing was changed
  int localised = 0, explained = 0, proved = 0;
  int wrong_op = 0, missed = 0, failed = 0, wrong_fault = 0;
  int conditions = 0;                       // of named ops
  int seen_calls = 0, seen_places = 0;      // of these, exact in find's runs
  int unseen_calls = 0, unseen_places = 0;  // and in others
  ConditionFit seen, unseen;                // summed over all
  std::vector<int> runs_first, runs;
  std::vector<double> seconds;

  void add(const CaseScore& score);
  /// Those in which a fault changed something.
  [[nodiscard]] int shown() const { return cases - inconclusive; }
};

/// The share's 95 % interval of Wilson, J. Am. Stat. Assoc. 22, 1927; {0, 1} of nothing.
[[nodiscard]] std::pair<double, double> wilson_interval(int successes, int trials);

/// The page: totals, tables by fault, architecture, dtype and cache, what was planted against what was accepted, and every miss with the
/// command that repeats it. Times apart it is the same for the same seed.
[[nodiscard]] std::string accuracy_page(const Campaign& campaign);
[[nodiscard]] Json to_json(const Campaign& campaign);

/// "culprit qualify --engine ref --seed 1 --only 12"
[[nodiscard]] std::string only_command(const Campaign& campaign, const std::string& name);
/// "F05:tap=layers.*.q_rope, qwen3, bf16, padded"; of a null what it has in place of faults.
[[nodiscard]] std::string describe(const QualifyCase& drawn);

}  // namespace culprit
