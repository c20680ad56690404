#pragma once
// The fault catalogue: each entry is a trigger, an injection and a prediction, all from one function. The same entry injects a fault into
// any engine (the driver kit applies it to the engine's own tensors) and predicts what a broken op outputs (the explainer applies it to
// the float64 result), so a mechanism is written once.
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "decode/graph.h"
#include "decode/node_eval.h"
#include "format/weight.h"
#include "tensor/tensor.h"

namespace culprit {

/// A fault with its parameters, as on the command line: "F01", "F01:content=zero", "F05:tap=*.q_rope,content=input".
struct FaultSpec {
  std::string id;
  std::map<std::string, std::string> parameters;

  /// Error ids: fault-unknown (with the nearest id), fault-parameter.
  [[nodiscard]] static Result<FaultSpec> parse(std::string_view text);
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::string parameter(const std::string& name, std::string_view otherwise) const;
};

/// One op as it ran: everything that a trigger may depend on and a broken op may have read.
struct OpCall {
  const Node* node = nullptr;
  std::shared_ptr<const Node> owned_node;  // what `node` points to where a fault altered it; else empty
  std::vector<Tensor> inputs;              // as the engine had them, with their layouts
  NodeContext context;
  // The node's weight where the op took it packed, with scales and biases in the dtype of the run; context.weight is then what it means, in
  // f32. Empty: the op took a dense weight, and no fault of packed ones can break it.
  std::shared_ptr<const Weight> packed;
  Tensor result;    // what the right op returns, in the dtype of the run
  Tensor previous;  // the same tap's output one step before, of any shape: what the memory held; empty: zeros
  DType dtype = DType::f32;
  int collapsed_rank = 4;         // rope: rank of the tensor as given to the op; 3 after [row, head, ..] was collapsed to [row * head, ..]
  bool per_row_offset = false;    // rope: the offset was given as a vector
  bool rows_changed = false;      // rows joined or left: the batch is not that of the step before
  std::int64_t taken_back = 0;    // tokens that were taken back from the cache since the step before
  bool prefix_reused = false;     // the first step behind a prefix of another sequence, which `taken_back` left of it
  bool restored = false;          // the cache was made again from a copy since the step before
  bool poisoned = false;          // spare slots of a cache hold NaN, not 0
  std::int64_t traced_slot = -1;  // cache_write: slots that the run's first single-token step found; -1: there was none yet
  std::vector<Tensor> behind;     // sdpa: of the keys and of the values, what earlier steps wrote behind the last slot [row, kv_head, slot,
                                  // channel], and is no longer live; empty: nothing
};

/// What a broken op did, in one of three forms. `altered`: it computed the right formula from other inputs, weights, positions or slots; its
/// output is then evaluate_node of that call, and legal arithmetic around it is bounded as for any call. `altered_rows`: the same with a
/// call for each row of the batch, whose outputs lie behind each other. `output` alone: it wrote exactly these values (copies, stale memory,
/// arithmetic whose every rounding is modelled).
struct Broken {
  std::optional<OpCall> altered;
  Tensor output;  // set in all forms, in the dtype of the run
  std::vector<OpCall> altered_rows = {};
};

/// What lies behind the live slots of a cache that keeps its places: tokens that were taken back, until others take theirs.
class SlotsBehind {
 public:
  /// What a step reads, [row, kv_head, slot, channel]; returns what lies behind it, which earlier steps read; empty: nothing.
  Tensor read(const Tensor& cache);

 private:
  Tensor held_;
};

struct FaultEntry {
  std::string_view id;
  std::vector<Op> ops;                                                       // the ops that it can break
  std::string_view title;                                                    // "single-token RoPE rotates only index 0 of dimension 0"
  std::string_view mechanism;                                                // a sentence for verdicts
  std::string_view trigger;                                                  // a sentence
  std::string_view public_example;                                           // "mlx 3494"
  std::vector<std::pair<std::string, std::vector<std::string>>> parameters;  // allowed values; the first is the default
  /// What the broken op does in place of call.result, or nothing when the trigger is not met or nothing would change.
  Result<std::optional<Broken>> (*breaks)(const FaultSpec&, const OpCall&);
  /// Whether the spec, which names every parameter, is a hypothesis of its own: false where a parameter means nothing beside the others, but
  /// for its first value. nullptr: always.
  bool (*is_distinct)(const FaultSpec&) = nullptr;
  /// Whether it can break this node, which is one of `ops`; nullptr: any. It saves bringing the others to the host.
  bool (*concerns)(const FaultSpec&, const Node&) = nullptr;

  // For its page, `culprit docs faults`.
  std::vector<std::pair<std::string_view, std::string_view>> meanings = {};     // "content=zero" -> "the rest of the output is zeros"
  std::vector<std::pair<std::string_view, std::string_view>> look_alikes = {};  // id -> the measurement that decides between the two
  std::string_view plant_model = "llama";  // arguments of `culprit model make` for a model in which it shows
  std::string_view plant_options = "";     // of `culprit find`, besides engine and fault

  [[nodiscard]] bool can_break(Op op) const;
  /// can_break, `concerns`, and the tap glob of the spec.
  [[nodiscard]] bool can_break(const FaultSpec& spec, const Node& node) const;
};

[[nodiscard]] std::span<const FaultEntry> fault_catalogue();
[[nodiscard]] const FaultEntry* find_fault(std::string_view id);
/// The tensor that the broken op returns, or nothing: the trigger is not met, or `spec`'s tap glob does not match. Error ids:
/// fault-unknown.
[[nodiscard]] Result<std::optional<Tensor>> apply_fault(const FaultSpec& spec, const OpCall& call);
/// Every spec of every entry for `op`: the product of the parameters' values, of which each is distinct. What the explainer tries.
[[nodiscard]] std::vector<FaultSpec> hypotheses(Op op);
/// Whether what was never written is left open: the entry's `content` matters to `spec`, which does not name it.
[[nodiscard]] bool content_is_open(const FaultSpec& spec);
/// `spec` with each parameter that it does not name at its first value.
[[nodiscard]] FaultSpec completed(FaultSpec spec);

}  // namespace culprit
