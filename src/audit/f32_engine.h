#pragma once
// For tests: an engine with f32 arithmetic in a chosen order of summation, with every step rounded to the dtype (split) or only the last
// (fused). All of it is legal.
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "audit/test_trace.h"
#include "decode/delta_ops.h"
#include "decode/expert_ops.h"

namespace culprit {

enum class Order { forward, backward, pairwise };

/// Sums in f32, each partial sum rounded to `dtype` as well.
inline float ordered_sum(const std::vector<float>& terms, Order order, DType dtype = DType::f32) {
  const auto round = [&](float x) { return static_cast<float>(round_to(dtype, x)); };
  if (order == Order::pairwise) {
    auto level = terms;
    while (level.size() > 1) {
      std::vector<float> next;
      for (std::size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(round(level[i] + level[i + 1]));
      if (level.size() % 2 == 1) next.push_back(level.back());
      level = std::move(next);
    }
    return level.empty() ? 0 : level.front();
  }
  float sum = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) sum = round(sum + terms[order == Order::forward ? i : terms.size() - 1 - i]);
  return sum;
}

class F32Engine {
 public:
  F32Engine(DType dtype, Order order, bool split, bool linear_in_dtype = false)
      : dtype_(dtype), order_(order), split_(split), linear_in_dtype_(linear_in_dtype) {}

  Tensor operator()(const Node& node, const std::vector<Array>& inputs, const NodeContext& context) const {
    auto result = must(evaluate_node(node, inputs, context));  // its shape; its values for ops that only move them
    switch (node.op) {
      case Op::embedding:
      case Op::cache_write:
      case Op::slice:
      case Op::select_head:
        break;
      case Op::add:
        for (std::size_t i = 0; i < result.values.size(); ++i) result.values[i] = f(inputs[0].values[i]) + f(inputs[1].values[i]);
        break;
      case Op::scale: {
        const float factor = node.weight.empty() ? step(f(node.factor)) : f(context.weight.values()[0]);
        for (std::size_t i = 0; i < result.values.size(); ++i) result.values[i] = f(inputs[0].values[i]) * factor;
        break;
      }
      case Op::softcap:
        for (std::size_t i = 0; i < result.values.size(); ++i) {
          const float cap = step(f(node.factor));
          result.values[i] = cap * step(std::tanh(step(f(inputs[0].values[i]) / cap)));
        }
        break;
      case Op::geglu:
        for (std::size_t i = 0; i < result.values.size(); ++i) {
          const float g = f(inputs[0].values[i]);
          const float z = f(kGeluScale) * (g + f(kGeluCubic) * g * g * g);
          result.values[i] = step(0.5F * g * (1 + std::tanh(z))) * f(inputs[1].values[i]);
        }
        break;
      case Op::swiglu:
        for (std::size_t i = 0; i < result.values.size(); ++i) {
          const float g = f(inputs[0].values[i]);
          const auto round = [&](float x) { return node.precise ? x : step(x); };
          const float sigmoid = round(1 / (1 + round(std::exp(-g))));  // in f16, exp(-g) overflows below -11.09
          result.values[i] = round(g * sigmoid) * f(inputs[1].values[i]);
        }
        break;
      case Op::rms_norm:
        rms_norm(node, inputs[0], context, result);
        break;
      case Op::linear:
        linear(node, inputs[0], context, result);
        break;
      case Op::rope:
        rope(rope_of(node, *context.facts), inputs[0], context, result);
        break;
      case Op::sdpa:
        sdpa(node, inputs, context, result);
        break;
      case Op::multiply:
        for (std::size_t i = 0; i < result.values.size(); ++i)
          result.values[i] = f(inputs[0].values[i]) * f(inputs[1].values[i * inputs[1].values.size() / inputs[0].values.size()]);
        break;
      case Op::sigmoid:
        for (std::size_t i = 0; i < result.values.size(); ++i) result.values[i] = 1 / (1 + std::exp(-f(inputs[0].values[i])));
        break;
      case Op::silu:
        for (std::size_t i = 0; i < result.values.size(); ++i) {
          const float x = f(inputs[0].values[i]);
          result.values[i] = x * step(1 / (1 + std::exp(-x)));
        }
        break;
      case Op::route:
        route(node, inputs[0], result);
        break;
      case Op::expert_linear:
        expert_linear(node, inputs, context, result);
        break;
      case Op::expert_sum:
        expert_sum(node, inputs, result);
        break;
      case Op::causal_conv:
        causal_conv(inputs[0], context, result);
        break;
      case Op::l2_norm:
        l2_norm(node, inputs[0], result);
        break;
      case Op::delta_decay:
        for (std::size_t i = 0; i < result.values.size(); ++i) {
          const auto head = static_cast<std::int64_t>(i) % context.weight.dim(0);
          const float t = f(inputs[0].values[i]) + f(context.bias.at({head}));
          const float soft = std::max(t, 0.0F) + std::log1p(std::exp(-std::abs(t)));
          result.values[i] = std::exp(-std::exp(f(context.weight.at({head}))) * soft);
        }
        break;
      case Op::delta_state:
        delta_state(inputs, context, result);
        break;
      case Op::delta_out:
        delta_out(inputs, result);
        break;
    }
    return to_tensor(result, output_dtype(node, dtype_));
  }

 private:
  static float f(double x) { return static_cast<float>(x); }
  float step(float x) const { return split_ ? f(round_to(dtype_, x)) : x; }

  void rms_norm(const Node& node, const Array& x, const NodeContext& context, Array& out) const {
    auto weight = node.unscaled ? std::vector<double>(static_cast<std::size_t>(x.shape.back()), 1.0) : context.weight.values();
    if (node.unit_offset)
      for (auto& value : weight) value = step(1 + f(value));
    for (std::size_t start = 0; start < x.values.size(); start += weight.size()) {
      std::vector<float> squares;
      for (std::size_t c = 0; c < weight.size(); ++c) squares.push_back(f(x.values[start + c]) * f(x.values[start + c]));
      const float root = 1 / std::sqrt(ordered_sum(squares, order_) / static_cast<float>(weight.size()) + f(context.facts->norm_epsilon));
      for (std::size_t c = 0; c < weight.size(); ++c) out.values[start + c] = step(f(x.values[start + c]) * root) * f(weight[c]);
    }
  }

  void linear(const Node& node, const Array& input, const NodeContext& context, Array& out) const {
    const auto x = input.shape.size() == 4 ? merge_heads(input) : input;
    const auto weight = context.weight.values();
    const auto width = static_cast<std::size_t>(x.shape[2]), outs = weight.size() / width;
    Array flat{{x.shape[0], x.shape[1], static_cast<std::int64_t>(outs)}, {}};
    const auto inside = linear_in_dtype_ ? dtype_ : DType::f32;
    for (std::size_t token = 0; token < x.values.size() / width; ++token)
      for (std::size_t j = 0; j < outs; ++j) {
        std::vector<float> terms;
        for (std::size_t i = 0; i < width; ++i)
          terms.push_back(f(round_to(inside, f(x.values[token * width + i]) * f(weight[j * width + i]))));
        if (!node.bias.empty()) terms.push_back(f(context.bias.at({static_cast<std::int64_t>(j)})));
        flat.values.push_back(ordered_sum(terms, order_, inside));
      }
    out = node.heads_out > 0 ? split_heads(flat, node.heads_out) : flat;
  }

  void rope(const RopeFacts& facts, const Array& x, const NodeContext& context, Array& out) const {
    const auto half = static_cast<std::size_t>(facts.dims / 2);
    const auto channels = static_cast<std::size_t>(x.shape[3]), tokens = static_cast<std::size_t>(x.shape[2]);
    const auto heads = static_cast<std::size_t>(x.shape[1]);
    for (std::size_t vector = 0; vector < x.values.size() / channels; ++vector)
      for (std::size_t pair = 0; pair < half; ++pair) {
        const float frequency = std::exp(-std::log(f(facts.base)) * static_cast<float>(pair) / static_cast<float>(half));
        float slowed = facts.scaling == RopeScaling::linear ? frequency / f(facts.factor) : frequency;
        if (facts.scaling == RopeScaling::proportional)
          slowed = 2 * static_cast<int>(pair) < facts.rotated ? frequency / f(facts.factor) : 0;
        const float angle = static_cast<float>(context.at.position[vector / tokens / heads][vector % tokens]) * slowed;
        const float cosine = step(std::cos(angle)), sine = step(std::sin(angle));
        const bool halves = facts.pairing == RopePairing::half;
        const auto first = vector * channels + (halves ? pair : 2 * pair), second = halves ? first + half : first + 1;
        const float p = f(x.values[first]), q = f(x.values[second]);
        out.values[first] = step(p * cosine) - step(q * sine);
        out.values[second] = step(q * cosine) + step(p * sine);
      }
  }

  void sdpa(const Node& node, const std::vector<Array>& inputs, const NodeContext& context, Array& out) const {
    const auto& [q, k, v] = std::tie(inputs[0], inputs[1], inputs[2]);
    const auto heads = q.shape[1], tokens = q.shape[2], channels = q.shape[3], kv_heads = k.shape[1], slots = k.shape[2];
    const float scale = step(f(attention_scale(*context.facts)));
    for (std::int64_t vector = 0; vector < q.count() / channels; ++vector) {
      const auto token = vector % tokens, head = vector / tokens % heads, row = vector / tokens / heads;
      const auto base = (row * kv_heads + head / (heads / kv_heads)) * slots;
      const auto element = [&](const Array& cache, std::int64_t slot, std::int64_t c) {
        return f(cache.values[static_cast<std::size_t>((base + slot) * channels + c)]);
      };
      std::vector<float> scores;
      std::vector<std::int64_t> seen;
      for (std::int64_t slot = 0; slot < slots; ++slot) {
        if (!is_visible(context.at.slot[static_cast<std::size_t>(row)][static_cast<std::size_t>(slot)],
                        context.at.position[static_cast<std::size_t>(row)][static_cast<std::size_t>(token)], node.window))
          continue;
        std::vector<float> terms;
        for (std::int64_t c = 0; c < channels; ++c)
          terms.push_back(step(f(q.values[static_cast<std::size_t>(vector * channels + c)]) * scale) * element(k, slot, c));
        scores.push_back(step(ordered_sum(terms, order_)));
        seen.push_back(slot);
      }
      const float largest = *std::ranges::max_element(scores);
      for (auto& score : scores) score = std::exp(score - largest);
      const float total = ordered_sum(scores, order_);
      for (std::int64_t c = 0; c < channels; ++c) {
        std::vector<float> terms;
        for (std::size_t j = 0; j < seen.size(); ++j) terms.push_back(step(scores[j] / total) * element(v, seen[j], c));
        out.values[static_cast<std::size_t>(vector * channels + c)] = ordered_sum(terms, order_);
      }
    }
  }

  void route(const Node& node, const Array& scores, Array& out) const {
    const auto experts = static_cast<std::size_t>(scores.shape[2]);
    for (std::size_t start = 0; start < scores.values.size(); start += experts) {
      float most = f(scores.values[start]);
      for (std::size_t i = 0; i < experts; ++i) most = std::max(most, f(scores.values[start + i]));
      std::vector<float> shares;
      for (std::size_t i = 0; i < experts; ++i) shares.push_back(std::exp(f(scores.values[start + i]) - most));
      const float total = ordered_sum(shares, order_);
      std::vector<double> rounded;
      for (const float share : shares) rounded.push_back(f(round_to(dtype_, share / total)));
      const auto kept = largest(rounded, static_cast<std::size_t>(node.experts));
      std::vector<float> of_kept;
      for (const auto expert : kept) of_kept.push_back(f(rounded[expert]));
      const float sum = node.normalised ? step(ordered_sum(of_kept, order_)) : 1;
      for (std::size_t i = 0; i < experts; ++i) out.values[start + i] = 0;
      for (const auto expert : kept) out.values[start + expert] = f(rounded[expert]) / sum;
    }
  }

  void expert_linear(const Node& node, const std::vector<Array>& inputs, const NodeContext& context, Array& out) const {
    const auto width = static_cast<std::size_t>(context.weight.dim(2)), outs = static_cast<std::size_t>(context.weight.dim(1));
    for (const auto& batch : expert_batches(inputs[0], inputs[1], node.experts)) {
      const auto weight = expert_weight(context.weight, batch.expert).values();
      for (std::size_t i = 0; i < batch.to.size(); ++i)
        for (std::size_t j = 0; j < outs; ++j) {
          std::vector<float> terms;
          for (std::size_t c = 0; c < width; ++c)
            terms.push_back(f(inputs[0].values[batch.from[i] * width + c]) * f(weight[j * width + c]));
          out.values[batch.to[i] * outs + j] = ordered_sum(terms, order_);
        }
    }
  }

  void expert_sum(const Node& node, const std::vector<Array>& inputs, Array& out) const {
    const auto channels = static_cast<std::size_t>(inputs[0].shape[3]), tokens = static_cast<std::size_t>(inputs[0].shape[2]);
    const auto experts = static_cast<std::size_t>(inputs[1].shape[2]), used = static_cast<std::size_t>(node.experts);
    for (std::size_t i = 0; i < out.values.size(); ++i) {
      const auto place = i / channels;
      const auto weights = std::span(inputs[1].values).subspan(place * experts, experts);
      const auto chosen = chosen_experts(weights, used);
      std::vector<float> terms;
      for (std::size_t choice = 0; choice < used; ++choice)
        terms.push_back(f(weights[chosen[choice]]) *
                        f(inputs[0].values[((place / tokens * used + choice) * tokens + place % tokens) * channels + i % channels]));
      out.values[i] = ordered_sum(terms, order_);
    }
  }

  void causal_conv(const Array& x, const NodeContext& context, Array& out) const {
    const auto kernel = context.weight.dim(1), tokens = x.shape[2], channels = x.shape[3];
    for (std::size_t i = 0; i < out.values.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const auto channel = at % channels, token = at / channels % tokens, row = at / channels / tokens;
      std::vector<float> terms;
      for (std::int64_t k = 0; k < kernel; ++k) {
        const auto source = token + k - (kernel - 1);
        const double value = source >= 0 ? x.values[static_cast<std::size_t>((row * tokens + source) * channels + channel)]
                                         : context.cache.at({row, 0, source + kernel - 1, channel});
        terms.push_back(f(value) * f(context.weight.at({channel, k})));
      }
      out.values[i] = ordered_sum(terms, order_);
    }
  }

  void l2_norm(const Node& node, const Array& x, Array& out) const {
    const auto channels = static_cast<std::size_t>(x.shape.back());
    for (std::size_t start = 0; start < x.values.size(); start += channels) {
      std::vector<float> squares;
      for (std::size_t c = 0; c < channels; ++c) squares.push_back(f(x.values[start + c]) * f(x.values[start + c]));
      const float root = 1 / std::sqrt(ordered_sum(squares, order_) + f(kL2NormEpsilon));
      for (std::size_t c = 0; c < channels; ++c) out.values[start + c] = step(f(node.factor)) * step(f(x.values[start + c]) * root);
    }
  }

  void delta_state(const std::vector<Array>& inputs, const NodeContext& context, Array& out) const {
    const auto &k = inputs[0], &v = inputs[1];
    const auto heads = v.shape[1], tokens = v.shape[2], values = v.shape[3], keys = k.shape[3], shared = heads / k.shape[1];
    const auto element = [](const Array& array, std::int64_t place) { return f(array.values[static_cast<std::size_t>(place)]); };
    for (std::int64_t vector = 0; vector < v.shape[0] * heads; ++vector) {
      const auto row = vector / heads, head = vector % heads;
      std::vector<float> state(static_cast<std::size_t>(values * keys), 0.0F);
      for (std::size_t i = 0; i < state.size() && context.cache.rank() > 0; ++i)
        state[i] = f(context.cache.at({row, head, 0, static_cast<std::int64_t>(i)}));
      for (std::int64_t token = 0; token < tokens; ++token)
        for (std::int64_t c = 0; c < values; ++c) {
          const auto gate = (row * tokens + token) * heads + head;
          const auto key = [&](std::int64_t j) { return element(k, ((row * k.shape[1] + head / shared) * tokens + token) * keys + j); };
          std::vector<float> terms;
          for (std::int64_t j = 0; j < keys; ++j) {
            auto& cell = state[static_cast<std::size_t>(c * keys + j)];
            cell *= element(inputs[2], gate);
            terms.push_back(cell * key(j));
          }
          const float change = (element(v, (vector * tokens + token) * values + c) - ordered_sum(terms, order_)) * element(inputs[3], gate);
          for (std::int64_t j = 0; j < keys; ++j) {
            auto& cell = state[static_cast<std::size_t>(c * keys + j)];
            cell += key(j) * change;
            out.values[static_cast<std::size_t>(((vector * tokens + token) * values + c) * keys + j)] = cell;
          }
        }
    }
  }

  void delta_out(const std::vector<Array>& inputs, Array& out) const {
    const auto &q = inputs[0], &state = inputs[1];
    const auto keys = q.shape[3], tokens = q.shape[2], heads = state.shape[1], values = state.shape[3] / keys, shared = heads / q.shape[1];
    for (std::size_t i = 0; i < out.values.size(); ++i) {
      const auto vector = static_cast<std::int64_t>(i) / values, token = vector % tokens, head = vector / tokens % heads;
      const auto query = ((vector / tokens / heads * q.shape[1] + head / shared) * tokens + token) * keys;
      std::vector<float> terms;
      for (std::int64_t j = 0; j < keys; ++j)
        terms.push_back(f(state.values[i * static_cast<std::size_t>(keys) + static_cast<std::size_t>(j)]) *
                        f(q.values[static_cast<std::size_t>(query + j)]));
      out.values[i] = ordered_sum(terms, order_);
    }
  }

  DType dtype_;
  Order order_;
  bool split_, linear_in_dtype_;
};

}  // namespace culprit
