#pragma once
// A plan is everything that determines one run. It travels as JSON in the protocol's `load` and `run` and stands in every trace.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "decode/cache_spec.h"
#include "fault/fault.h"
#include "format/gguf.h"
#include "num/dtype.h"

namespace culprit {

enum class WeightSource { engine, culprit };  // the engine's own loader, or handed in
/// When an engine evaluates. lazy: at the end of a step. each_op, each_layer: also after each op, or between layers. async: each op's
/// evaluation is begun as the graph is walked, and waited for at the end of the step.
enum class Sync { lazy, each_op, each_layer, async };

// Initialisers that look idle let designated ones leave a member out without a warning.

/// What a driver loads once and runs many times.
struct LoadPlan {
  std::filesystem::path model = {};
  DType dtype = DType::f32;
  WeightSource weights = WeightSource::culprit;
  GgufReadFault weight_fault = {};  // culprit's weights only
};

/// Makes an op right, or replaces a tap's tensor, at matching taps and steps.
struct Intervention {
  enum class Kind {
    exact,    // the op's output is recomputed in float64 from its own inputs and rounded once to its dtype
    variant,  // the op runs in another variant
    replace,  // the tap's tensor is read from a safetensors file under the tap's key "TAP@STEP" or "TAP"
    keep,     // the op's own output is brought to the host and handed back: the control of the others, which do that too
  };
  Kind kind = Kind::exact;
  std::string tap = {};             // glob over output taps
  std::vector<int> steps = {};      // empty: all
  std::string variant = {};         // for variant: "composed"
  std::filesystem::path file = {};  // for replace
};

/// Tokens that a step feeds behind its own and takes back from the cache after it, as speculative decoding does.
struct Draft {
  int step = 0;
  std::vector<std::vector<int>> tokens = {};  // [row of the step][token], as many in each row
};

/// Another sequence that is decoded first, in steps of its own, and taken back from the cache up to what it shares with the row's: a server's
/// prefix cache. The run goes on from there.
struct Reuse {
  int common = 0;                             // tokens that each row shares with its other sequence
  std::vector<std::vector<int>> tokens = {};  // [row][token] of the other sequence behind those, as many in each row
  std::vector<int> chunks = {};               // tokens of each of its steps, summing to all of it
};

struct RunPlan {
  std::string name;                         // of the arm, for people
  std::vector<std::vector<int>> sequences;  // token ids, one row each; shorter ones are padded on the left
  std::vector<int> sequence_ids;            // logical identity of each row; empty: 0, 1, ..
  std::int64_t position_base = 0;           // position of each row's first token
  std::vector<int> chunks;                  // tokens fed per step, summing to the longest row, or to what is left of it behind a reused
                                            // prefix; {1,1,1} is incremental, {3} one prefill
  bool reprefill = false;                   // step s feeds the first chunks[0]+..+chunks[s] tokens into a fresh cache
  // [step]: indices of the rows that it feeds, in the order in which they lie in its batch; empty: all rows at every step. Rows of one step
  // decode together; when that set changes, rows join or leave, and those that come again later keep their caches meanwhile.
  std::vector<std::vector<int>> active;
  std::vector<Draft> drafts;       // at most one a step
  std::optional<Reuse> reuse;      // its steps come first: step numbers below count them
  std::vector<int> restore_after;  // steps after which each cache is copied to the host, dropped, and made again from the copy
  std::string cache = "concat";    // CacheSpec
  bool poison = false;             // spare slots of a cache hold NaN, so that reading one shows
  std::map<std::string, std::string>
      variants;  // "rope": "fused"|"composed"; "rope.rank": "4"|"3"; "rope.offset": "scalar"|"per_row"; "linear": "dense"|"quantized"; ...
  std::vector<std::string> capture = {"**"};  // tap globs
  std::vector<int> capture_steps;             // empty: all
  bool hash_only = false;
  std::vector<Intervention> interventions;
  std::vector<FaultSpec> faults;
  Sync sync = Sync::lazy;
  std::vector<std::string> sync_taps;  // where `sync` acts: after these taps only, "GLOB" or "GLOB@STEP"; empty: everywhere
};

/// Tokens of the longest row.
[[nodiscard]] int length_of(const RunPlan& plan);
/// Indices of the rows that `step` feeds, in the order in which they lie in its batch.
[[nodiscard]] std::vector<std::size_t> rows_at(const RunPlan& plan, int step);
/// Whether rows joined or left between the step before and this one.
[[nodiscard]] bool rows_changed_at(const RunPlan& plan, int step);
/// Logical identity of a row.
[[nodiscard]] int sequence_of(const RunPlan& plan, std::size_t row);
/// Padding before the row's first token.
[[nodiscard]] int padding_of(const RunPlan& plan, std::size_t row);
[[nodiscard]] bool has_padding(const RunPlan& plan);
/// Whether rows of one batch may be at different positions, so that RoPE needs an offset for each.
[[nodiscard]] bool has_row_offsets(const RunPlan& plan);
/// Steps of another sequence, whose prefix is reused; they are the first ones.
[[nodiscard]] int priming_steps(const RunPlan& plan);
[[nodiscard]] int steps_of(const RunPlan& plan);
/// Tokens, padding included, that are fed for good by the end of `step`; and those of them that `row` was fed.
[[nodiscard]] int fed_through(const RunPlan& plan, int step);
[[nodiscard]] int fed_through(const RunPlan& plan, int step, std::size_t row);
/// Tokens that `step` feeds for good; a re-prefill feeds all so far.
[[nodiscard]] int kept_at(const RunPlan& plan, int step);
/// Tokens that `step` feeds behind those, of a draft or of another sequence; `row` is one of the step's.
[[nodiscard]] std::vector<int> foreign_tokens(const RunPlan& plan, int step, std::size_t row);
[[nodiscard]] int foreign_at(const RunPlan& plan, int step);
/// How many of the last tokens that the cache holds in `step` are to be taken back, after it or after a later step.
[[nodiscard]] int foreign_held(const RunPlan& plan, int step);
/// Tokens that are taken back after `step`.
[[nodiscard]] int taken_back_after(const RunPlan& plan, int step);
/// Whether the cache was made again from a copy before `step`.
[[nodiscard]] bool restored_before(const RunPlan& plan, int step);
/// Whether attention may read a cache behind whose live slots tokens lie that were taken back.
[[nodiscard]] bool leaves_slots_behind(const RunPlan& plan, const CacheSpec& cache);
/// Tells `call`, of an op at `step`, what the schedule did since the step before.
void set_schedule(const RunPlan& plan, int step, OpCall& call);
/// Whether `sync` acts after `tap` at `step`.
[[nodiscard]] bool syncs_after(const RunPlan& plan, const std::string& tap, int step);
/// Feeds what `step` feeds; what is taken back after it is fed too. A re-prefill begins with a fresh cache.
void feed_step(const RunPlan& plan, int step, CacheContent& content);
inline constexpr int kPaddingToken = 0;

[[nodiscard]] Json to_json(const LoadPlan& plan);
[[nodiscard]] Json to_json(const RunPlan& plan);
/// Error ids: plan-invalid, dtype-unknown, fault-unknown.
[[nodiscard]] Result<LoadPlan> load_plan_from_json(const Json& json);
[[nodiscard]] Result<RunPlan> run_plan_from_json(const Json& json);
/// Checks what does not need a model: chunks sum to the length, what a cache can hold and take back, known enum values.
[[nodiscard]] Result<void> validate(const RunPlan& plan);
[[nodiscard]] Result<void> validate_tokens(const RunPlan& plan, int vocabulary);

[[nodiscard]] std::string_view name_of(WeightSource source);
[[nodiscard]] std::string_view name_of(Sync sync);

}  // namespace culprit
