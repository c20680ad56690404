#include "decode/node_eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "decode/affine_groups.h"
#include "decode/delta_ops.h"
#include "decode/expert_ops.h"

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
    case Op::multiply:
    case Op::expert_linear:
    case Op::expert_sum:
    case Op::delta_out:
      return 2;
    case Op::sdpa:
      return 3;
    case Op::delta_state:
      return 4;
    case Op::scale:
    case Op::rms_norm:
    case Op::linear:
    case Op::rope:
    case Op::cache_write:
    case Op::softcap:
    case Op::slice:
    case Op::sigmoid:
    case Op::silu:
    case Op::route:
    case Op::causal_conv:
    case Op::l2_norm:
    case Op::delta_decay:
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

/// What a cache reads of x.
Result<Array> as_stored(const Node& node, const Array& x, const NodeContext& context) {
  const auto& spec = context.cache_spec;
  if (!spec.quantizes()) return x;
  if (x.shape[3] % spec.group != 0) return misfit(node, fmt::format("groups of {} do not divide x {}", spec.group, to_string(x.shape)));
  return to_array(dequantise_groups(quantise_groups(to_tensor(x, context.dtype), spec), spec));
}

Result<Array> evaluate_cache_write(const Node& node, const Array& given, const NodeContext& context) {
  if (given.shape.size() != 4) return misfit(node, fmt::format("expected heads, got {}", to_string(given.shape)));
  CULPRIT_TRY(const auto x, as_stored(node, given, context));
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

Result<Array> evaluate_slice(const Node& node, const Array& x) {
  if (x.shape.empty() || node.begin < 0 || node.channels <= 0 || node.begin + node.channels > x.shape.back())
    return misfit(node, fmt::format("x {} has no channels [{}, {})", to_string(x.shape), node.begin, node.begin + node.channels));
  auto part = slice_channels(x, node.begin, node.channels);
  if (node.heads_out == 0) return part;
  if (part.shape.size() == 4) part = merge_heads(part);
  if (part.shape.size() != 3 || part.shape[2] % node.heads_out != 0)
    return misfit(node, fmt::format("{} are not {} heads", to_string(part.shape), node.heads_out));
  return split_heads(part, node.heads_out);
}

Result<Array> evaluate_multiply(const Node& node, const Array& x, const Array& y) {
  auto one_channel = x.shape;
  if (!one_channel.empty()) one_channel.back() = 1;
  if (y.shape != x.shape && y.shape != one_channel)
    return misfit(node, fmt::format("{} cannot be multiplied by {}", to_string(x.shape), to_string(y.shape)));
  return multiply(x, y);
}

/// Routing weights [row, token, expert] that can give each token its experts.
Result<void> check_routing(const Node& node, const Array& weights) {
  if (weights.shape.size() != 3 || node.experts <= 0 || weights.shape[2] < node.experts)
    return misfit(node, fmt::format("{} cannot route each token to {} experts", to_string(weights.shape), node.experts));
  return {};
}

Result<Array> evaluate_route(const Node& node, const Array& scores) {
  CULPRIT_CHECK(check_routing(node, scores));
  return route(scores, node.experts, node.normalised);
}

Result<Array> evaluate_expert_linear(const Node& node, const Array& x, const Array& weights, const NodeContext& context) {
  CULPRIT_CHECK(check_routing(node, weights));
  CULPRIT_CHECK(check_weight(node, context.weight, 3));
  const Shape by_token = {weights.shape[0], weights.shape[1], context.weight.dim(2)};
  const Shape by_choice = {weights.shape[0], node.experts, weights.shape[1], context.weight.dim(2)};
  if ((x.shape != by_token && x.shape != by_choice) || context.weight.dim(0) != weights.shape[2])
    return misfit(node, fmt::format("x {}, routing {} and weight {} do not fit each other", to_string(x.shape), to_string(weights.shape),
                                    to_string(context.weight.shape())));
  return expert_linear(x, weights, context.weight, node.experts);
}

Result<Array> evaluate_expert_sum(const Node& node, const Array& x, const Array& weights) {
  CULPRIT_CHECK(check_routing(node, weights));
  if (x.shape.size() != 4 || x.shape[0] != weights.shape[0] || x.shape[1] != node.experts || x.shape[2] != weights.shape[1])
    return misfit(node, fmt::format("x {} and routing {} do not fit each other", to_string(x.shape), to_string(weights.shape)));
  return expert_sum(x, weights, node.experts);
}

Result<Array> evaluate_causal_conv(const Node& node, const Array& x, const NodeContext& context) {
  CULPRIT_CHECK(check_weight(node, context.weight, 2));
  const auto before = context.weight.dim(1) - 1;
  if (x.shape.size() != 4 || x.shape[1] != 1 || x.shape[3] != context.weight.dim(0) || before < 0 ||
      !is_matrix(context.at.position, x.shape[0], x.shape[2]) || context.at.slot.size() != context.at.position.size())
    return misfit(node, fmt::format("x {}, weight {} and the coordinates do not fit each other", to_string(x.shape),
                                    to_string(context.weight.shape())));
  const Shape state = {x.shape[0], 1, before, x.shape[3]};
  if (context.cache.rank() > 0 && context.cache.shape() != state)
    return misfit(node, fmt::format("the tokens before are {}, expected {}", to_string(context.cache.shape()), to_string(state)));
  const auto padding = padding_tokens(context.at);
  const auto earlier = context.cache.values();
  Array window{{x.shape[0], 1, before + x.shape[2], x.shape[3]}, {}};
  window.values.resize(static_cast<std::size_t>(element_count(window.shape)));
  const auto row_before = static_cast<std::size_t>(before * x.shape[3]), row = static_cast<std::size_t>(x.shape[2] * x.shape[3]);
  const auto channels = static_cast<std::size_t>(x.shape[3]);
  for (std::size_t r = 0; r < static_cast<std::size_t>(x.shape[0]); ++r) {
    double* out = &window.values[r * (row_before + row)];
    if (!earlier.empty()) std::copy_n(&earlier[r * row_before], row_before, out);
    for (std::size_t i = 0; i < row; ++i)
      if (padding[(r * row + i) / channels] == 0) out[row_before + i] = x.values[r * row + i];
  }
  return causal_conv(window, context.weight.values());
}

Result<Array> evaluate_delta_decay(const Node& node, const Array& x, const NodeContext& context) {
  CULPRIT_CHECK(check_weight(node, context.weight, 1));
  if (x.shape.empty() || x.shape.back() != context.weight.dim(0) || context.bias.shape() != context.weight.shape())
    return misfit(node, fmt::format("x {}, weight {} and bias {} do not fit each other", to_string(x.shape),
                                    to_string(context.weight.shape()), to_string(context.bias.shape())));
  return delta_decay(x, context.weight.values(), context.bias.values());
}

Result<Array> evaluate_delta_state(const Node& node, const std::vector<Array>& inputs, const NodeContext& context) {
  const auto &k = inputs[0], &v = inputs[1], &decay = inputs[2], &rate = inputs[3];
  bool fits = k.shape.size() == 4 && v.shape.size() == 4 && k.shape[0] == v.shape[0] && k.shape[2] == v.shape[2] && k.shape[1] > 0 &&
              v.shape[1] % k.shape[1] == 0 && decay.shape == Shape{v.shape[0], v.shape[2], v.shape[1]} && rate.shape == decay.shape &&
              is_matrix(context.at.position, v.shape[0], v.shape[2]) && context.at.slot.size() == context.at.position.size();
  const auto& before = context.cache;
  if (fits && before.rank() > 0)
    fits = before.rank() == 4 && before.dim(0) == v.shape[0] && before.dim(1) == v.shape[1] &&
           (before.dim(2) == 1 || before.dim(2) == v.shape[2]) && before.dim(3) == v.shape[3] * k.shape[3];
  if (!fits)
    return misfit(node, fmt::format("k {}, v {}, decay {}, rate {}, the state before {} and the coordinates do not fit each other",
                                    to_string(k.shape), to_string(v.shape), to_string(decay.shape), to_string(rate.shape),
                                    to_string(before.shape())));
  return delta_state(k, v, decay, rate, before.rank() > 0 ? to_array(before) : Array{}, padding_tokens(context.at),
                     output_dtype(node, context.dtype));
}

Result<Array> evaluate_delta_out(const Node& node, const Array& q, const Array& state) {
  const bool fits = q.shape.size() == 4 && state.shape.size() == 4 && q.shape[0] == state.shape[0] && q.shape[2] == state.shape[2] &&
                    q.shape[1] > 0 && state.shape[1] % q.shape[1] == 0 && q.shape[3] > 0 && state.shape[3] % q.shape[3] == 0;
  if (!fits) return misfit(node, fmt::format("q {} and state {} do not fit each other", to_string(q.shape), to_string(state.shape)));
  return delta_out(q, state);
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
    case Op::slice:
      return evaluate_slice(node, inputs[0]);
    case Op::multiply:
      return evaluate_multiply(node, inputs[0], inputs[1]);
    case Op::sigmoid:
      return sigmoid(inputs[0]);
    case Op::silu:
      return silu(inputs[0]);
    case Op::route:
      return evaluate_route(node, inputs[0]);
    case Op::expert_linear:
      return evaluate_expert_linear(node, inputs[0], inputs[1], context);
    case Op::expert_sum:
      return evaluate_expert_sum(node, inputs[0], inputs[1]);
    case Op::causal_conv:
      return evaluate_causal_conv(node, inputs[0], context);
    case Op::l2_norm:
      return l2_norm(inputs[0], round_to(context.dtype, node.factor));
    case Op::delta_decay:
      return evaluate_delta_decay(node, inputs[0], context);
    case Op::delta_state:
      return evaluate_delta_state(node, inputs, context);
    case Op::delta_out:
      return evaluate_delta_out(node, inputs[0], inputs[1]);
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
