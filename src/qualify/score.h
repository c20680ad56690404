#pragma once
// Scores a verdict against what was planted.
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "locate/condition.h"
#include "locate/verdict.h"
#include "qualify/draw.h"

namespace culprit {

/// What became of a case. The first two of each kind are what culprit has to answer.
enum class Outcome {
  localised,     // a fault: each op that it changed is named, and no other
  inconclusive,  // a fault: find says that it changed nothing, and it did not: the planted runs are the clean ones bit for bit
  quiet,         // a null: no divergence
  wrong_op,      // an op is named that no fault changed
  missed,        // an op that a fault changed is not named
  false_alarm,   // a null: something is named
  failed         // an engine failure, something not supported, or an error
};
[[nodiscard]] std::string_view name_of(Outcome outcome);
/// Whether the outcome is one of the right answers.
[[nodiscard]] bool is_right(Outcome outcome);

/// Places of one op's outputs, bad where the fault changed them.
struct Places {
  std::vector<Observation> all;
  std::vector<int> calls;  // [place]: the number of the call, one op at one step of one run
};

/// A condition against places, or against calls: those that it takes in and those that the fault changed.
struct ConditionScore {
  std::int64_t bad_covered = 0;
  std::int64_t bad_left_out = 0;  // false negatives
  std::int64_t good_covered = 0;  // false positives
  std::int64_t good_left_out = 0;
  [[nodiscard]] bool exact() const { return bad_left_out == 0 && good_covered == 0; }
};
struct ConditionFit {
  ConditionScore places, calls;  // a call is taken in, or changed, with any of its places
};

/// What is known of a case from elsewhere than the verdict.
struct Truth {
  std::map<std::string, Places> seen;    // by op that was changed: places of find's own runs
  std::map<std::string, Places> unseen;  // of runs that find did not make; may be empty
  bool shows_elsewhere = false;          // where find's runs do not change: runs that find does not make do
  bool equal_to_clean = false;           // the planted runs hold the bits of the same runs without faults; known where nothing was changed
  /// Whether the fault, as a verdict names it, makes the same of every recorded call of the op as the planted ones do.
  std::function<bool(const std::string& op, const std::string& fault)> same_as_planted;
};

/// What a verdict says of one op that was changed.
struct NamedOp {
  std::string op;
  std::string planted;     // id of the fault that changed it
  std::string accepted;    // the fault that explains it; empty: none
  bool explained = false;  // and it is the planted one, or predicts the same
  bool proved = false;
  bool unsettled = false;  // none is accepted, for several predict everything; the planted one is among them
  int runs = 0;            // made when the audit of the last one first named the op
  std::string condition;
  bool readable = true;  // the condition
  ConditionFit seen, unseen;
};

struct CaseScore {
  std::string name;
  Outcome outcome = Outcome::failed;
  std::string why;  // for an outcome that is wrong: one line
  std::string status;
  int attempt = 0;               // draws before this one, of faults that change nothing in any run of their model
  bool shows_elsewhere = false;  // inconclusive: other runs than find's show it, so find's arms lack its trigger
  std::vector<std::string> changed_ops, named_ops;
  std::vector<NamedOp> named;  // the changed ones that are named
  int precision_findings = 0;
  int runs = 0;        // of the whole find
  int runs_first = 0;  // until every changed op was named; 0 when one is not
  double seconds = 0;

  /// A fault case in which each changed op is explained as it was planted.
  [[nodiscard]] bool explained() const;
  [[nodiscard]] bool proved() const;
  /// An op is explained by a fault that predicts something else.
  [[nodiscard]] bool wrong_fault() const;
};

/// `planted` are the faults of the case, in the order in which it has them.
[[nodiscard]] CaseScore score(const QualifyCase& drawn, const Verdict& verdict, const Truth& truth);
/// Of a case whose find ended in an error.
[[nodiscard]] CaseScore score(const QualifyCase& drawn, const Error& error);

[[nodiscard]] Json to_json(const CaseScore& score);
/// Error ids: json-invalid.
[[nodiscard]] Result<CaseScore> case_score_from_json(const Json& json);

}  // namespace culprit
