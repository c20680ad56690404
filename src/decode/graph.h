#pragma once
// The decode graph: one list of nodes in execution order. The reference engine runs it, drivers walk it, the auditor re-does its nodes,
// and taps are named by it. Tensors: activations [row, token, channel], heads [row, head, token, channel],
// caches [row, kv_head, slot, channel], logits [row, token, vocab].
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "decode/facts.h"

namespace culprit {

enum class Op { embedding, scale, rms_norm, linear, rope, cache_write, sdpa, swiglu, geglu, add, softcap, select_head };

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
  double factor = 1;                // scale, softcap
  bool unscaled = false;            // rms_norm: there is no weight
  int head = 0;                     // select_head
};

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
