#include "decode/graph.h"

#include <fmt/format.h>

#include <array>
#include <cassert>

#include "base/text.h"
#include "decode/architecture.h"

namespace culprit {
namespace {
struct OpName {
  Op op;
  std::string_view text;
};
constexpr OpName kNames[] = {
    {Op::embedding, "embedding"},
    {Op::scale, "scale"},
    {Op::rms_norm, "rms_norm"},
    {Op::linear, "linear"},
    {Op::rope, "rope"},
    {Op::cache_write, "cache_write"},
    {Op::sdpa, "sdpa"},
    {Op::swiglu, "swiglu"},
    {Op::geglu, "geglu"},
    {Op::add, "add"},
    {Op::softcap, "softcap"},
    {Op::slice, "slice"},
    {Op::multiply, "multiply"},
    {Op::sigmoid, "sigmoid"},
    {Op::silu, "silu"},
    {Op::route, "route"},
    {Op::expert_linear, "expert_linear"},
    {Op::expert_sum, "expert_sum"},
    {Op::causal_conv, "causal_conv"},
    {Op::l2_norm, "l2_norm"},
    {Op::delta_decay, "delta_decay"},
    {Op::delta_state, "delta_state"},
    {Op::delta_out, "delta_out"},
    {Op::select_head, "select_head"},
};
constexpr std::size_t kOpCount = std::size(kNames);

constexpr auto kOps = [] {
  std::array<Op, kOpCount> ops{};
  for (std::size_t i = 0; i < kOpCount; ++i) ops[i] = kNames[i].op;
  return ops;
}();
}  // namespace

std::string_view name_of(Op op) {
  for (const auto& name : kNames)
    if (name.op == op) return name.text;
  assert(!"an op without a name");
  return {};
}

Result<Op> parse_op(std::string_view name) {
  std::vector<std::string_view> known;
  for (const auto& entry : kNames) {
    if (entry.text == name) return entry.op;
    known.push_back(entry.text);
  }
  const auto near = nearest(name, known);
  return fail("plan-invalid", fmt::format("there is no op \"{}\"{}", name, near.empty() ? "" : fmt::format("; did you mean {}?", near)));
}

std::span<const Op> all_ops() { return kOps; }

DType output_dtype(const Node& node, DType dtype) {
  const bool wide = node.op == Op::delta_decay || node.op == Op::delta_state;
  return wide && rounding_of(dtype).unit > rounding_of(DType::f32).unit ? DType::f32 : dtype;
}

bool has_state(Op op) { return op == Op::cache_write || op == Op::causal_conv || op == Op::delta_state; }

const RopeFacts& rope_of(const Node& node, const Facts& facts) {
  assert(!node.rope_local || facts.rope_local);
  return node.rope_local ? *facts.rope_local : facts.rope;
}

Graph::Graph(Facts facts) : facts_(std::move(facts)) {
  const auto* architecture = find_architecture(facts_.architecture);
  assert(architecture != nullptr && "facts that check_facts refuses");
  nodes_ = architecture->nodes(facts_);
  for (std::size_t i = 0; i < nodes_.size(); ++i) index_.emplace(nodes_[i].output, static_cast<int>(i));
}

const Node* Graph::find(std::string_view output) const {
  const int index = index_of(output);
  return index < 0 ? nullptr : &nodes_[static_cast<std::size_t>(index)];
}

int Graph::index_of(std::string_view output) const {
  const auto found = index_.find(output);
  return found == index_.end() ? -1 : found->second;
}

std::string tap_role(std::string_view tap) {
  const auto dot = tap.rfind('.');
  return std::string(dot == std::string_view::npos ? tap : tap.substr(dot + 1));
}

}  // namespace culprit
