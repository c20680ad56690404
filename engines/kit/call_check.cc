#include "engines/kit/call_check.h"

#include <fmt/format.h>

#include <cmath>

namespace culprit::kit {
namespace {

tl::unexpected<Error> misfit(const OpCall& call) {
  std::string shapes;
  for (const auto& input : call.inputs) shapes += ' ' + to_string(input.shape());
  if (call.context.weight.rank() > 0) shapes += fmt::format(" weight {}", to_string(call.context.weight.shape()));
  return fail("tensor-layout", fmt::format("{}: these shapes do not fit each other:{}", name_of(call.node->op), shapes), call.node->output);
}

struct Arity {
  std::size_t inputs;
  int rank;         // of each input; 0: any, -1: 3 or 4
  int weight_rank;  // 0: none
};

Arity arity_of(const OpCall& call) {
  switch (call.node->op) {
    case Op::embedding:
      return {0, 0, 2};
    case Op::scale:
      return {1, 0, call.context.weight.empty() ? 0 : 1};
    case Op::softcap:
      return {1, 0, 0};
    case Op::rms_norm:
      return {1, 0, call.node->unscaled ? 0 : 1};
    case Op::linear:
      return {1, -1, 2};
    case Op::rope:
    case Op::cache_write:
    case Op::select_head:
      return {1, 4, 0};
    case Op::sdpa:
      return {3, 4, 0};
    case Op::swiglu:
    case Op::geglu:
    case Op::add:
    case Op::multiply:
      return {2, 0, 0};
    case Op::slice:
    case Op::sigmoid:
    case Op::silu:
    case Op::l2_norm:
      return {1, 0, 0};
    case Op::route:
      return {1, 3, 0};
    case Op::expert_linear:
      return {2, -1, 3};
    case Op::expert_sum:
      return {2, -1, 0};
    case Op::delta_decay:
      return {1, 3, 1};
    case Op::delta_out:
      return {2, 4, 0};
    case Op::causal_conv:
      return {1, 4, 2};
    case Op::delta_state:
      return {4, -1, 0};
  }
  return {};
}

Result<void> check_arity(const OpCall& call) {
  const auto [inputs, rank, weight_rank] = arity_of(call);
  const auto& weight = call.context.weight;
  const auto name = name_of(call.node->op);
  if (call.inputs.size() != inputs)
    return fail("plan-invalid", fmt::format("{}: expected {} inputs, got {}", name, inputs, call.inputs.size()));
  if (weight_rank > 0 && weight.empty()) return fail("plan-invalid", fmt::format("{}: the weight is missing", name));
  if (weight_rank == 0 && !weight.empty()) return fail("plan-invalid", fmt::format("{} takes no weight", name));
  if (weight_rank > 0 && weight.rank() != weight_rank) return misfit(call);
  const auto& bias = call.context.bias;
  if (!bias.empty() && call.node->op != Op::linear && call.node->op != Op::delta_decay)
    return fail("plan-invalid", fmt::format("{} takes no bias", name));
  if (!bias.empty() && bias.dtype() != call.dtype)
    return fail("plan-invalid", fmt::format("{}: expected a bias in {}, got {}", name, name_of(call.dtype), name_of(bias.dtype())));
  for (const auto& input : call.inputs) {
    if (input.dtype() != call.dtype)
      return fail("plan-invalid", fmt::format("{}: expected operands in {}, got {}", name, name_of(call.dtype), name_of(input.dtype())));
    if (input.rank() == 0 || input.count() == 0) return misfit(call);
    if (rank > 0 ? input.rank() != rank : rank < 0 && input.rank() != 3 && input.rank() != 4) return misfit(call);
  }
  if (weight_rank > 0 && weight.dtype() != call.dtype)
    return fail("plan-invalid", fmt::format("{}: expected a weight in {}, got {}", name, name_of(call.dtype), name_of(weight.dtype())));
  return {};
}

Result<void> check_embedding(const OpCall& call) {
  const int heads = call.node->heads_out;
  if (heads < 0 || (heads > 0 && call.context.weight.dim(1) % heads != 0)) return misfit(call);
  const auto& tokens = call.context.tokens;
  if (tokens.empty() || tokens[0].empty()) return fail("tokens-invalid", "there are no tokens");
  for (const auto& row : tokens) {
    if (row.size() != tokens[0].size())
      return fail("tokens-invalid", fmt::format("rows of {} and of {} tokens", tokens[0].size(), row.size()));
    for (const int token : row)
      if (token < 0 || token >= call.context.weight.dim(0))
        return fail("tokens-invalid", fmt::format("id {} is not in the vocabulary [0, {})", token, call.context.weight.dim(0)));
  }
  return {};
}

Result<void> check_linear(const OpCall& call) {
  const auto& x = call.inputs[0];
  const auto& weight = call.context.weight;
  const auto in = x.rank() == 4 ? x.dim(1) * x.dim(3) : x.dim(2);
  const int heads = call.node->heads_out;
  if (in != weight.dim(1) || heads < 0 || (heads > 0 && weight.dim(0) % heads != 0)) return misfit(call);
  if (const auto& bias = call.context.bias; !bias.empty() && bias.shape() != Shape{weight.dim(0)})
    return fail("tensor-layout",
                fmt::format("linear: a bias {} does not fit a weight {}", to_string(bias.shape()), to_string(weight.shape())));
  return {};
}

Result<void> check_rope(const OpCall& call, std::span<const std::int64_t> offset) {
  const auto& x = call.inputs[0];
  if (call.node->rope_local && !call.context.facts->rope_local) return fail("plan-invalid", "rope: the facts have no rope_local");
  const int dims = rope_of(*call.node, *call.context.facts).dims;
  if (dims <= 0 || dims % 2 != 0 || dims > x.dim(3))
    return fail("tensor-layout", fmt::format("rope: {} channels of {} cannot be rotated in pairs", dims, x.dim(3)));
  const auto rows = static_cast<std::size_t>(x.dim(0));
  if (call.collapsed_rank != 3 && call.collapsed_rank != 4)
    return fail("plan-invalid", fmt::format("rope: rank {} is neither 3 nor 4", call.collapsed_rank));
  if (offset.size() != 1 && offset.size() != rows)
    return fail("plan-invalid", fmt::format("rope: expected an offset, or one for each of {} rows, got {}", rows, offset.size()));
  if (call.collapsed_rank == 3 && offset.size() > 1)
    return fail("plan-invalid", "rope: rank 3 has rows and heads in one dimension, so an offset for each row has no meaning");
  return {};
}

Result<void> check_sdpa(const OpCall& call) {
  const auto &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2];
  const bool fits = q.dim(0) == k.dim(0) && q.dim(3) == k.dim(3) && k.dim(0) == v.dim(0) && k.dim(1) == v.dim(1) && k.dim(2) == v.dim(2) &&
                    q.dim(1) % k.dim(1) == 0 && q.dim(2) <= k.dim(2);
  if (!fits) return misfit(call);
  if (call.node->window < 0) return fail("plan-invalid", fmt::format("sdpa: expected a window >= 0, got {}", call.node->window));
  return {};
}

Result<void> check_factor(const OpCall& call) {
  const double factor = call.node->factor;
  if (!std::isfinite(factor) || (call.node->op == Op::softcap && !(round_to(call.dtype, factor) > 0)))
    return fail("plan-invalid", fmt::format("{}: a factor of {} has no meaning", name_of(call.node->op), factor));
  return {};
}

Result<void> check_scale_weight(const OpCall& call) {
  const auto& weight = call.context.weight;
  if (weight.empty()) return {};
  if (weight.dim(0) != 1) return misfit(call);
  if (call.node->factor != 1) return fail("plan-invalid", "scale: it has a factor or a weight, not both");
  return {};
}

Result<void> check_select_head(const OpCall& call) {
  const int head = call.node->head;
  if (head >= 0 && head < call.inputs[0].dim(1)) return {};
  return fail("plan-invalid", fmt::format("select_head: there is no head {} of {}", head, call.inputs[0].dim(1)));
}

Result<void> check_cache_write(const OpCall& call) {
  const auto& x = call.inputs[0];
  const auto& cache = call.context.cache;
  if (cache.rank() == 0) return {};
  if (cache.rank() != 4 || cache.dim(0) != x.dim(0) || cache.dim(1) != x.dim(1) || cache.dim(3) != x.dim(3))
    return fail("tensor-layout",
                fmt::format("cache_write: {} cannot be appended to a cache {}", to_string(x.shape()), to_string(cache.shape())));
  return {};
}

Result<void> check_multiply(const OpCall& call) {
  auto one_channel = call.inputs[0].shape();
  one_channel.back() = 1;
  if (call.inputs[1].shape() != call.inputs[0].shape() && call.inputs[1].shape() != one_channel) return misfit(call);
  return {};
}

Result<void> check_routing(const OpCall& call, const Tensor& weights) {
  if (weights.rank() != 3) return misfit(call);
  if (call.node->experts <= 0 || call.node->experts > weights.dim(2))
    return fail("plan-invalid",
                fmt::format("{}: a token cannot use {} of {} experts", name_of(call.node->op), call.node->experts, weights.dim(2)));
  return {};
}

Result<void> check_experts(const OpCall& call) {
  const auto &x = call.inputs[0], &weights = call.inputs[1];
  CULPRIT_CHECK(check_routing(call, weights));
  const auto channels = call.node->op == Op::expert_linear ? call.context.weight.dim(2) : x.dim(-1);
  const Shape by_token = {weights.dim(0), weights.dim(1), channels},
              by_choice = {weights.dim(0), call.node->experts, weights.dim(1), channels};
  if (call.node->op == Op::expert_linear && call.context.weight.dim(0) != weights.dim(2)) return misfit(call);
  if (x.shape() != by_choice && (call.node->op != Op::expert_linear || x.shape() != by_token)) return misfit(call);
  return {};
}

Result<void> check_delta_out(const OpCall& call) {
  const auto &q = call.inputs[0], &state = call.inputs[1];
  const bool fits = q.dim(0) == state.dim(0) && q.dim(2) == state.dim(2) && state.dim(1) % q.dim(1) == 0 && state.dim(3) % q.dim(3) == 0;
  if (!fits) return misfit(call);
  return {};
}

}  // namespace

Result<void> check_operands(const OpCall& call, std::span<const std::int64_t> offset) {
  if (call.node->op == Op::causal_conv || call.node->op == Op::delta_state)
    return fail("not-supported", fmt::format("{}: an op request has no state to go on from", name_of(call.node->op)));
  CULPRIT_CHECK(check_arity(call));
  switch (call.node->op) {
    case Op::embedding:
      return check_embedding(call);
    case Op::rms_norm:
      if (!call.node->unscaled && call.inputs[0].dim(-1) != call.context.weight.dim(0)) return misfit(call);
      return {};
    case Op::linear:
      return check_linear(call);
    case Op::rope:
      return check_rope(call, offset);
    case Op::cache_write:
      return check_cache_write(call);
    case Op::sdpa:
      return check_sdpa(call);
    case Op::scale:
      CULPRIT_CHECK(check_scale_weight(call));
      return check_factor(call);
    case Op::softcap:
      return check_factor(call);
    case Op::slice:
      if (call.node->begin < 0 || call.node->channels <= 0 || call.node->begin + call.node->channels > call.inputs[0].dim(-1))
        return misfit(call);
      return {};
    case Op::multiply:
      return check_multiply(call);
    case Op::route:
      return check_routing(call, call.inputs[0]);
    case Op::expert_linear:
    case Op::expert_sum:
      return check_experts(call);
    case Op::delta_decay:
      if (call.inputs[0].dim(2) != call.context.weight.dim(0) || call.context.bias.shape() != call.context.weight.shape())
        return misfit(call);
      return {};
    case Op::delta_out:
      return check_delta_out(call);
    case Op::sigmoid:
    case Op::silu:
    case Op::causal_conv:
    case Op::delta_state:
      return {};
    case Op::l2_norm:
      return check_factor(call);
    case Op::select_head:
      return check_select_head(call);
    case Op::swiglu:
    case Op::geglu:
    case Op::add:
      if (call.inputs[0].shape() != call.inputs[1].shape()) return misfit(call);
      return {};
  }
  return {};
}

}  // namespace culprit::kit
