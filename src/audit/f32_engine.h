#pragma once
// For tests: an engine with f32 arithmetic in a chosen order of summation, with every step rounded to the dtype (split) or only the last
// (fused). All of it is legal.
#include <cmath>
#include <vector>

#include "audit/test_trace.h"

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
          const float sigmoid = step(1 / (1 + step(std::exp(-g))));  // in f16, exp(-g) overflows below -11.09
          result.values[i] = step(g * sigmoid) * f(inputs[1].values[i]);
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
    }
    return to_tensor(result, dtype_);
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

  DType dtype_;
  Order order_;
  bool split_, linear_in_dtype_;
};

}  // namespace culprit
