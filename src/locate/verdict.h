#pragma once
// What is claimed, with its evidence. Every claim cites ledger entries; what was not tested is listed.
#include <optional>
#include <string>
#include <vector>

#include "audit/summary.h"
#include "base/json.h"
#include "base/result.h"
#include "locate/condition.h"
#include "locate/ledger.h"

namespace culprit {

enum class Status { no_divergence, localised, explained, proved, inconclusive, unsupported, engine_failure };
[[nodiscard]] std::string_view name_of(Status status);

/// Two runs that are compared, and the one factor in which they have to differ.
struct Contrast {
  int expected = 0, actual = 0;  // entries
  std::string factor;
};

/// What lets a sentence follow from runs.
enum class Rule { observation, audit, sufficiency, relation, control, necessity };
[[nodiscard]] std::string_view name_of(Rule rule);
[[nodiscard]] Result<Rule> parse_rule(std::string_view name);

/// A sentence and the runs it rests on.
struct Claim {
  std::string text;
  std::vector<int> entries;
  Rule rule = Rule::observation;
  bool holds = true;  // sufficiency, control, necessity: whether it was shown; the sentence says what was seen either way
  std::vector<Contrast> contrasts = {};
};

/// How well a fault model's prediction fits what was seen.
struct PredictionScore {
  std::string fault;                 // "F01:content=zero"
  std::int64_t records = 0;          // op outputs compared
  std::int64_t changed = 0;          // elements that the fault changes
  std::int64_t changed_matched = 0;  // of these, within rounding of what was seen
  std::int64_t exact = 0;            // of these, equal bit for bit
  std::int64_t elements = 0;         // all elements compared
  std::int64_t matched = 0;
  [[nodiscard]] bool complete() const { return changed > 0 && matched == elements; }
};

/// How far one tap of a run with a defect is from the same run with the op made right, over the values that the defect can have reached.
struct TapDamage {
  std::string tap;
  int layer = -1;
  bool own = false;            // an output of the op that is outside its bound
  bool behind = false;         // one of these, or computed from one
  std::int64_t places = 0;     // (step, row, token or slot)
  std::int64_t elements = 0;   // at these
  std::int64_t differing = 0;  // of these, with another value
  double error_max = 0;        // largest |bad - right|; NaN when one is
  double relative_l2 = 0;      // |bad - right| / |right|, 2-norms; NaN when a value is
  double share = 0;            // of relative_l2 at Damage::reference_tap
  double norm_ratio = 1;       // |bad| / |right|: all that a probe of norms sees
  std::int64_t elsewhere_elements = 0;
  double elsewhere_relative_l2 = 0;  // where the defect cannot have reached: only the rounding of the op that was made right
  double noise_relative_l2 = 0;      // between the right run and the same one made again
};

/// How much of a defect each tap behind it still shows.
struct Damage {
  std::string arm;
  std::string reference_tap;    // the defect's own, in the first layer that has it, that is furthest off
  bool repeatable = true;       // the right run twice: equal bit for bit
  std::vector<TapDamage> taps;  // in graph order; those before the defect too
  std::int64_t positions = 0;   // affected (step, row, token) with logits
  int flips = 0;                // of these, with another argmax, ties apart
  int ties = 0;                 // with another argmax within rounding
  std::vector<int> entries;     // the right run, the same again, the bad one
};

/// One defect.
struct Defect {
  Status status = Status::localised;
  std::string op;                 // "rope"; "load" for the checkpoint loader
  std::vector<std::string> taps;  // roles: "q_rope", "k_rope"
  std::string layers;             // "all 30 layers"
  std::string condition;          // "dtype bf16 and position >= 3"
  std::vector<std::string> condition_notes;
  std::string fault;  // the fault that explains it, or empty
  std::string mechanism;
  std::string wrong_side;                    // "mlx@0.29.4: its own output is outside the bound from its own inputs"
  std::string numbers;                       // size of the error
  std::vector<PredictionScore> predictions;  // the accepted one first
  std::vector<Claim> evidence;
  std::vector<Claim> ruled_out;
  std::vector<std::string> known;  // matching entries of the register
  std::optional<Damage> damage;    // what it does to what lies behind; of an op that could be made right in a run
  bool sufficient = false;
  bool necessary = false;
};

/// Lower precision than declared: stands beside any verdict.
struct PrecisionFinding {
  std::string op;
  std::string condition;
  std::string reason;
  std::vector<std::string> arms;  // that show it
  std::int64_t elements = 0;
  double ratio_max = 0;          // error / standard bound
  double logits_effect_max = 0;  // largest change of a logit when the op is made right
  std::string other_rounding;    // "rms_norm composed": a legal variant of another op in the same arm, or empty
  double other_effect_max = 0;   // what that changes: where it is as much, the input is sensitive and not the op at fault
  std::vector<int> entries;
};

/// A relation between two arms, as it came out. With every op of both inside its bound the difference is legal, however large.
struct RelationOutcome {
  std::string name;
  std::string factor;                      // the one factor in which the arms differ
  int expected = 0, actual = 0;            // entries
  std::int64_t positions = 0;              // (sequence, position) compared
  double logits_difference_max = 0;        // NaN when a logit of either side is
  int flips = 0;                           // positions whose argmax differs, ties apart
  int ties = 0;                            // positions whose argmax differs within rounding
  std::optional<std::int64_t> first_flip;  // position
  int first_flip_sequence = 0;
  int first_flip_expected = 0, first_flip_actual = 0;  // token ids; -1 where all logits are NaN
  double first_flip_margin = 0;                        // the smaller top-2 margin of the two sides
  std::string refused;                                 // why the ledger refused the contrast, or empty
};

/// Results that depend on when the engine evaluates, or on what is recorded: a fact, with the runs that show it, and no proof of a race.
/// Stands beside any verdict. Names are nodes' outputs.
struct OrderFinding {
  std::string order;        // against lazy evaluation: "each_op", "each_layer", "async"; or "recording": all taps against the logits alone
  bool audited = false;     // every op of both runs was; else only their logits are known
  bool repeatable = false;  // both plans give the same bits each time
  int runs = 0;             // of each plan
  int base_equal = 0, other_equal = 0;  // of these, with the bits of the first
  std::string first_difference;         // "TAP@STEP": the first recorded output that differs, in order of steps and of the graph
  std::string place;                    // evaluating this one changes the result; empty when bisection found none
  std::string until;                    // but only before this one; empty: up to the end of the step
  std::string together_from;            // only together with those from here on; empty: alone
  std::vector<int> steps;               // one of these steps is enough
  std::vector<int> entries;
};

/// What became of a suspect that the user named.
struct SuspectOutcome {
  enum class Finding {
    absent,   // the model has no such part, or none of its outputs could be judged
    cleared,  // no output of it is outside its bound, and with it alone made right the defect stays, or goes as far as with its own values
    charged,  // outputs of it are outside their bound
    unsettled,  // its outputs are inside their bounds, but with it alone made right the defect does not stay as it was
  };
  std::string name;
  Finding finding = Finding::absent;
  bool stays = false;     // with it alone made right, the defect
  bool own_cure = false;  // the defect goes as far when its own outputs are handed back unchanged: it is their layout or timing
  std::string text;
  std::vector<int> entries;
};
[[nodiscard]] std::string_view name_of(SuspectOutcome::Finding finding);

/// How the engine failed, and the run in which it did.
struct EngineFailure {
  Error error;
  std::optional<BrokenRun> run;  // nothing when it failed outside of one
};

struct Verdict {
  static constexpr int kSchemaVersion = 1;
  Status status = Status::inconclusive;
  std::string reason;  // for inconclusive, unsupported and engine_failure
  std::optional<EngineFailure> failure;
  std::vector<Defect> defects;
  int explained = 0;                     // defects whose mechanism is explained
  std::vector<SuspectOutcome> suspects;  // as asked for
  std::vector<PrecisionFinding> precision;
  std::vector<OrderFinding> orders;
  std::vector<RelationOutcome> relations;
  std::vector<BoundSummary> audited;  // by op and variant
  std::vector<std::string> compared;
  std::vector<std::string> not_tested;
  std::vector<std::string> decisions;  // --explain: why each experiment was chosen
  std::string engine, model, dtype;
  std::uint64_t seed = 0;
  Json environment;  // hello and hashes
  Ledger ledger;
  std::string reproduce;  // one command
  double seconds = 0;

  [[nodiscard]] int exit_code(bool fail_on_precision = false) const;
};

/// docs/verdict.md describes the document.
[[nodiscard]] Json to_json(const Verdict& verdict);

}  // namespace culprit
