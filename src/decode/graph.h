#pragma once
// The decode graph: one list of nodes in execution order. The reference engine runs it, drivers walk it, the auditor re-does its nodes,
// and taps are named by it. Tensors: activations [row, token, channel], heads [row, head, token, channel],
// caches [row, kv_head, slot, channel], logits [row, token, vocab].
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "decode/facts.h"
#include "num/dtype.h"

namespace culprit {

enum class Op {
  embedding,
  scale,
  rms_norm,
  linear,
  rope,
  cache_write,
  sdpa,
  swiglu,
  geglu,
  add,
  softcap,
  slice,
  multiply,
  sigmoid,
  silu,
  route,
  expert_linear,
  expert_sum,
  causal_conv,
  l2_norm,
  delta_decay,
  delta_state,
  delta_out,
  select_head
};

[[nodiscard]] std::string_view name_of(Op op);
[[nodiscard]] Result<Op> parse_op(std::string_view name);
[[nodiscard]] std::span<const Op> all_ops();

/// One op. Inputs by kind (tap names):
///   embedding    (token ids of the step) -> [row, token, channel], or heads when heads_out > 0; weight [vocab, channel]
///   scale        x -> same shape: x * factor, the factor rounded to the dtype of the run; with a weight [1]: x * that
///   rms_norm     x or heads -> same shape, over the channels; weight [channel], or none with unscaled
///   linear       x [row, token, in] or heads (merged) -> [row, token, out] or heads when heads_out > 0; weight [out, in], bias [out]
///   rope         x heads -> same shape
///   cache_write  x heads of this step -> the whole cache after the write, what attention reads
///   sdpa         q heads, k cache, v cache -> heads
///   swiglu       gate, up -> same shape: gate * sigmoid(gate) * up
///   geglu        gate, up -> same shape: gelu(gate) * up, gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
///   add          x, y -> same shape
///   softcap      x -> same shape: factor * tanh(x / factor), the factor rounded to the dtype of the run
///   select_head  x heads -> [row, token, channel]: head `head` of them
///   slice        x or heads -> channels [begin, begin + channels) of it, split into heads when heads_out > 0
///   multiply     x, y -> x's shape: x * y; y has x's shape, or one channel that counts for all
///   sigmoid      x -> same shape: 1 / (1 + exp(-x))
///   silu         x -> same shape: x * sigmoid(x)
/// Of a mixture of experts; a token's chosen experts are those of chosen_experts (decode/ops.h):
///   route        scores [row, token, expert] -> same shape: softmax over all experts, kept for the `experts` largest and 0 for the rest;
///                of these that are kept, the share when `normalised`
///   expert_linear  x [row, token, in] or [row, choice, token, in], route -> [row, choice, token, out]; weight [expert, out, in]
///   expert_sum   x [row, choice, token, channel], route -> [row, token, channel]: each choice times its expert's weight, summed
/// Of a gated delta rule; a token of padding leaves no trace in them:
///   causal_conv  x [row, 1, token, channel] -> same shape: for each channel, the products of the last kernel tokens, this one the last,
///                with weight [channel, kernel]; tokens before the first are 0
///   l2_norm      x -> same shape: factor * x / sqrt(sum of its squares + 1e-6), the factor rounded to the dtype of the run
///   delta_decay  x [row, token, head] -> same shape, f32 at least: exp(-exp(weight) * softplus(x + bias)); weight and bias [head]
///   delta_state  k heads, v heads, decay [row, token, head], rate [row, token, head] -> the state after each token, [row, head, token,
///                value channel * key channel], f32 at least: S' = decay * S; S' + rate * (v - S' k) k^T; query and key heads are shared
///                in order
///   delta_out    q heads, delta_state -> heads [row, head, token, value channel]: S q
struct Node {
  Op op = Op::add;
  std::string output;               // tap name
  std::vector<std::string> inputs;  // tap names
  std::string weight;               // canonical weight name ("w." + output), or another's when tied; empty when none
  int layer = -1;                   // -1 outside of the layers
  int heads_out = 0;                // linear, embedding: split the output into heads of equal size
  std::string bias = {};            // linear: canonical name of its bias; empty when none
  bool unit_offset = false;         // rms_norm: multiplies by weight + 1
  bool rope_local = false;          // rope: of facts.rope_local
  int window = 0;                   // sdpa: a token sees so many last positions, itself included; 0: all
  double factor = 1;                // scale, softcap, l2_norm
  std::int64_t begin = 0;           // slice: first channel
  std::int64_t channels = 0;        // slice
  int experts = 0;                  // route, expert_linear, expert_sum: that a token uses
  bool normalised = false;          // route
  bool precise = false;             // swiglu: in f32 at least, rounded once
  bool unscaled = false;            // rms_norm: there is no weight
  int head = 0;                     // select_head
};

/// The dtype of a node's output in a run of `dtype`: a recurrent state and what decays it are kept in f32 at least.
[[nodiscard]] DType output_dtype(const Node& node, DType dtype);
/// Whether what the node computes depends on earlier steps.
[[nodiscard]] bool has_state(Op op);

[[nodiscard]] const RopeFacts& rope_of(const Node& node, const Facts& facts);

class Graph {
 public:
  /// The facts must be those that check_facts (decode/architecture.h) accepts.
  explicit Graph(Facts facts);
  [[nodiscard]] const Facts& facts() const { return facts_; }
  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
  [[nodiscard]] const Node* find(std::string_view output) const;
  /// Index of the node whose output is `output`, or -1.
  [[nodiscard]] int index_of(std::string_view output) const;

 private:
  Facts facts_;
  std::vector<Node> nodes_;
  std::map<std::string, int, std::less<>> index_;  // by output
};

/// "layers.12.q_rope" -> "q_rope"; "logits" -> "logits".
[[nodiscard]] std::string tap_role(std::string_view tap);

}  // namespace culprit
