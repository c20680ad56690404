#include "decode/node_eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace culprit {
namespace {
tl::unexpected<Error> misfit(const Node& node, std::string message) {
  return fail("tensor-layout", fmt::format("{}: {}", name_of(node.op), std::move(message)), node.output);
}

std::size_t inputs_of(Op op) {
  switch (op) {
    case Op::embedding:
      return 0;
    case Op::swiglu:
    case Op::geglu:
    case Op::add:
      return 2;
    case Op::sdpa:
      return 3;
    case Op::scale:
    case Op::rms_norm:
    case Op::linear:
    case Op::rope:
    case Op::cache_write:
    case Op::softcap:
    case Op::select_head:
      return 1;
  }
  return 0;
}

/// [row][token] lists of which each has `length` elements.
template <class T>
bool is_matrix(const std::vector<std::vector<T>>& lists, std::int64_t rows, std::int64_t length) {
  return static_cast<std::int64_t>(lists.size()) == rows &&
         std::all_of(lists.begin(), lists.end(), [&](const auto& list) { return static_cast<std::int64_t>(list.size()) == length; });
}

Result<void> check_weight(const Node& node, const Tensor& weight, int rank) {
  if (weight.rank() != rank || weight.empty() || !is_float(weight.dtype()))
    return misfit(node, fmt::format("expected a float weight with {} dimensions, got {} {}", rank, name_of(weight.dtype()),
                                    to_string(weight.shape())));
  return {};
}

Result<Array> evaluate_embedding(const Node& node, const NodeContext& context) {
  CULPRIT_CHECK(check_weight(node, context.weight, 2));
  const auto count = context.tokens.empty() ? 0 : static_cast<std::int64_t>(context.tokens[0].size());
  if (!is_matrix(context.tokens, static_cast<std::int64_t>(context.tokens.size()), count))
    return misfit(node, "rows of unequal numbers of tokens");
  for (const auto& row : context.tokens)
    for (const int token : row)
      if (token < 0 || token >= context.weight.dim(0))
        return fail("tokens-invalid", fmt::format("expected a token below {}, got {}", context.weight.dim(0), token), node.output);
  const auto channels = context.weight.dim(1);
  if (node.heads_out > 0 && channels % node.heads_out != 0)
    return misfit(node, fmt::format("{} channels are not {} heads", channels, node.heads_out));
  auto result = embedding(context.weight.contiguous(), context.tokens);
  return node.heads_out > 0 ? split_heads(result, node.heads_out) : result;
}

Result<Array> evaluate_scale(const Node& node, const Array& x, const NodeContext& context) {
  if (node.weight.empty()) return scale(x, round_to(context.dtype, node.factor));
  CULPRIT_CHECK(check_weight(node, context.weight, 1));
  if (context.weight.dim(0) != 1) return misfit(node, fmt::format("expected a weight [1], got {}", to_string(context.weight.shape())));
  return scale(x, context.weight.values()[0]);
}

Result<Array> evaluate_select_head(const Node& node, const Array& x) {
  if (x.shape.size() != 4 || node.head < 0 || node.head >= x.shape[1])
    return misfit(node, fmt::format("there is no head {} in {}", node.head, to_string(x.shape)));
  return select_head(x, node.head);
}

Result<Array> evaluate_rms_norm(const Node& node, const Array& x, const NodeContext& context) {
  if (node.unscaled) {
    if (x.shape.empty()) return misfit(node, "expected channels");
    return rms_norm(x, std::vector<double>(static_cast<std::size_t>(x.shape.back()), 1.0), context.facts->norm_epsilon);
  }
  CULPRIT_CHECK(check_weight(node, context.weight, 1));
  if (x.shape.empty() || x.shape.back() != context.weight.dim(0))
    return misfit(node, fmt::format("x {} does not fit weight {}", to_string(x.shape), to_string(context.weight.shape())));
  return rms_norm(x, context.weight.values(), context.facts->norm_epsilon, node.unit_offset);
}

Result<Array> evaluate_linear(const Node& node, const Array& given, const NodeContext& context) {
  CULPRIT_CHECK(check_weight(node, context.weight, 2));
  if (given.shape.size() != 3 && given.shape.size() != 4)
    return misfit(node, fmt::format("expected x with 3 or 4 dimensions, got {}", to_string(given.shape)));
  const bool heads = given.shape.size() == 4;
  const Array merged = heads ? merge_heads(given) : Array{};
  const Array& x = heads ? merged : given;
  const auto out = context.weight.dim(0);
  if (x.shape[2] != context.weight.dim(1))
    return misfit(node, fmt::format("x {} does not fit weight {}", to_string(given.shape), to_string(context.weight.shape())));
  if (node.bias.empty() != context.bias.empty() || (!node.bias.empty() && context.bias.shape() != Shape{out}))
    return misfit(node, fmt::format("bias {} does not fit weight {}", to_string(context.bias.shape()), to_string(context.weight.shape())));
  if (node.heads_out > 0 && out % node.heads_out != 0) return misfit(node, fmt::format("{} outputs are not {} heads", out, node.heads_out));
  const auto n = x.shape[0] * x.shape[1];
  Array result{{x.shape[0], x.shape[1], out}, std::vector<double>(static_cast<std::size_t>(n * out))};
  linear(x.values, n, context.weight.contiguous(), result.values);
  if (!node.bias.empty()) {
    const auto bias = context.bias.values();
    for (std::size_t i = 0; i < result.values.size(); ++i) result.values[i] += bias[i % bias.size()];
  }
  return node.heads_out > 0 ? split_heads(result, node.heads_out) : result;
}

Result<Array> evaluate_rope(const Node& node, const Array& x, const NodeContext& context) {
  if (node.rope_local && !context.facts->rope_local) return misfit(node, "the facts have no rope_local");
  const auto& facts = rope_of(node, *context.facts);
  const int dims = facts.dims;
  if (x.shape.size() != 4 || dims < 0 || dims % 2 != 0 || x.shape[3] < dims)
    return misfit(node, fmt::format("expected heads of at least {} channels, an even number, got {}", dims, to_string(x.shape)));
  if (!is_matrix(context.at.position, x.shape[0], x.shape[2]))
    return misfit(node, fmt::format("positions do not fit x {}", to_string(x.shape)));
  return rope(x, facts, context.at.position);
}

/// Each slot from where its position is: among the new tokens, else in the cache before.
Result<Array> moved_cache(const Node& node, const Array& x, const NodeContext& context) {
  const auto rows = x.shape[0], heads = x.shape[1], channels = x.shape[3], before = context.cache.dim(2);
  const auto slots = context.at.slot.empty() ? 0 : static_cast<std::int64_t>(context.at.slot[0].size());
  if (!is_matrix(context.at.slot, rows, slots) || !is_matrix(context.at.position, rows, x.shape[2]) ||
      !is_matrix(context.cache_slot, rows, before))
    return misfit(node,
                  fmt::format("x {} and the cache {} do not fit the coordinates", to_string(x.shape), to_string(context.cache.shape())));
  const auto cached = context.cache.values();
  Array result{{rows, heads, slots, channels}, std::vector<double>(static_cast<std::size_t>(rows * heads * slots * channels))};
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      const auto r = static_cast<std::size_t>(row);
      const auto position = context.at.slot[r][static_cast<std::size_t>(slot)];
      const auto& fed = context.at.position[r];
      const auto& held = context.cache_slot[r];
      const auto appended = slot - (slots - x.shape[2]);  // padding is appended, and stays where it is
      const auto token = position < 0 ? appended : std::find(fed.begin(), fed.end(), position) - fed.begin();
      const auto old = position < 0 ? slot : std::find(held.begin(), held.end(), position) - held.begin();
      const bool is_new = token >= 0 && token < x.shape[2];
      if (!is_new && old >= before) return misfit(node, fmt::format("position {} is neither new nor in the cache", position));
      for (std::int64_t head = 0; head < heads; ++head) {
        const auto* from = is_new ? &x.values[static_cast<std::size_t>(((row * heads + head) * x.shape[2] + token) * channels)]
                                  : &cached[static_cast<std::size_t>(((row * heads + head) * before + old) * channels)];
        std::copy(from, from + channels, &result.values[static_cast<std::size_t>(((row * heads + head) * slots + slot) * channels)]);
      }
    }
  return result;
}

Result<Array> evaluate_cache_write(const Node& node, const Array& x, const NodeContext& context) {
  if (x.shape.size() != 4) return misfit(node, fmt::format("expected heads, got {}", to_string(x.shape)));
  if (context.cache.rank() == 0) return x;
  const auto& before = context.cache.shape();
  if (before.size() != 4 || before[0] != x.shape[0] || before[1] != x.shape[1] || before[3] != x.shape[3])
    return misfit(node, fmt::format("x {} cannot be appended to a cache {}", to_string(x.shape), to_string(before)));
  if (!context.cache_slot.empty()) return moved_cache(node, x, context);
  const auto cached = context.cache.values();
  Array result{{x.shape[0], x.shape[1], before[2] + x.shape[2], x.shape[3]}, {}};
  result.values.reserve(cached.size() + x.values.size());
  const auto old_length = before[2] * before[3];
  const auto new_length = x.shape[2] * x.shape[3];
  for (std::int64_t head = 0; head < x.shape[0] * x.shape[1]; ++head) {
    result.values.insert(result.values.end(), cached.begin() + head * old_length, cached.begin() + (head + 1) * old_length);
    result.values.insert(result.values.end(), x.values.begin() + head * new_length, x.values.begin() + (head + 1) * new_length);
  }
  return result;
}

Result<Array> evaluate_sdpa(const Node& node, const Array& q, const Array& k, const Array& v, const NodeContext& context) {
  const bool fits = q.shape.size() == 4 && k.shape.size() == 4 && v.shape.size() == 4 && q.shape[0] == k.shape[0] &&
                    q.shape[3] == k.shape[3] && k.shape[0] == v.shape[0] && k.shape[1] == v.shape[1] && k.shape[2] == v.shape[2] &&
                    k.shape[1] > 0 && q.shape[1] % k.shape[1] == 0 && is_matrix(context.at.position, q.shape[0], q.shape[2]) &&
                    is_matrix(context.at.slot, k.shape[0], k.shape[2]);
  if (!fits)
    return misfit(node, fmt::format("q {}, k {}, v {} and the coordinates do not fit each other", to_string(q.shape), to_string(k.shape),
                                    to_string(v.shape)));
  return sdpa(q, k, v, attention_scale(*context.facts), context.at, node.window);
}
}  // namespace

Result<Array> evaluate_node(const Node& node, const std::vector<Array>& inputs, const NodeContext& context) {
  assert(context.facts != nullptr);
  if (inputs.size() != inputs_of(node.op))
    return misfit(node, fmt::format("expected {} inputs, got {}", inputs_of(node.op), inputs.size()));
  for (const auto& input : inputs)
    if (checked_count(input.shape) != input.count())
      return misfit(node, fmt::format("{} values for shape {}", input.count(), to_string(input.shape)));
  switch (node.op) {
    case Op::embedding:
      return evaluate_embedding(node, context);
    case Op::rms_norm:
      return evaluate_rms_norm(node, inputs[0], context);
    case Op::linear:
      return evaluate_linear(node, inputs[0], context);
    case Op::rope:
      return evaluate_rope(node, inputs[0], context);
    case Op::cache_write:
      return evaluate_cache_write(node, inputs[0], context);
    case Op::sdpa:
      return evaluate_sdpa(node, inputs[0], inputs[1], inputs[2], context);
    case Op::scale:
      return evaluate_scale(node, inputs[0], context);
    case Op::softcap:
      return softcap(inputs[0], round_to(context.dtype, node.factor));
    case Op::select_head:
      return evaluate_select_head(node, inputs[0]);
    case Op::swiglu:
    case Op::geglu:
    case Op::add:
      break;
  }
  if (inputs[0].shape != inputs[1].shape)
    return misfit(node, fmt::format("shapes {} and {} differ", to_string(inputs[0].shape), to_string(inputs[1].shape)));
  if (node.op == Op::add) return add(inputs[0], inputs[1]);
  return node.op == Op::swiglu ? swiglu(inputs[0], inputs[1]) : geglu(inputs[0], inputs[1]);
}

}  // namespace culprit
