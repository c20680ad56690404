#pragma once
// For tests: a trace of the decode graph, with each node's result made by a given engine and then touched by a given hand.
#include <filesystem>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "decode/architecture.h"
#include "decode/model.h"
#include "decode/node_eval.h"
#include "engine/plan.h"
#include "trace/trace.h"

namespace culprit {

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(to_string(result.error()));
  return *std::move(result);
}
inline void must(const Result<void>& result) {
  if (!result) throw std::runtime_error(to_string(result.error()));
}

struct TestRun {
  DType dtype = DType::f32;
  RunPlan plan;
  Json hello = Json::object();
  /// The op's result; evaluate_node rounded once when empty.
  std::function<Tensor(const Node&, const std::vector<Array>& inputs, const NodeContext&)> engine;
  /// Changes a result before anything reads it; `previous` is the same tap's tensor one step before, or empty.
  std::function<Tensor(const Node&, int step, const Tensor& result, const Tensor& previous)> touch;
  std::function<bool(int step, const std::string& tap)> records;  // all when empty
};

/// Three distinct rows of two tokens a step, at a position that bf16 cannot hold.
inline TestRun small_run(DType dtype) {
  TestRun run;
  run.dtype = dtype;
  run.plan.sequences = {{3, 14, 15, 92}, {65, 35, 89, 79}, {32, 38, 46, 26}};
  run.plan.position_base = 257;
  run.plan.chunks = {2, 2};
  return run;
}

/// The tokens of x [row, 1, token, channel] behind those of `earlier`.
inline Tensor with_appended(const Tensor& earlier, const Tensor& x) {
  auto all = Tensor::zeros(x.dtype(), {x.dim(0), 1, earlier.dim(2) + x.dim(2), x.dim(3)});
  for_each_index(earlier.shape(), [&](std::span<const std::int64_t> index) { all.set(index, earlier.at(index)); });
  for_each_index(x.shape(), [&](std::span<const std::int64_t> index) {
    std::vector<std::int64_t> to(index.begin(), index.end());
    to[2] += earlier.dim(2);
    all.set(to, x.at(index));
  });
  return all;
}

/// What an op with a state goes on from: the same tap's output of the step before, or of a convolution its last inputs, 0 at first.
inline Tensor state_before(const Node& node, const NodeContext& context, const Tensor& previous, const Tensor& earlier_inputs) {
  if (node.op == Op::cache_write) return previous;
  if (node.op == Op::delta_state && previous.rank() > 0) return previous.sliced(2, previous.dim(2) - 1, previous.dim(2)).contiguous();
  if (node.op != Op::causal_conv) return {};
  const auto kept = context.weight.dim(1) - 1;
  if (previous.rank() == 0) return Tensor::zeros(context.dtype, {context.at.rows(), 1, kept, context.weight.dim(0)});
  return earlier_inputs.sliced(2, earlier_inputs.dim(2) - kept, earlier_inputs.dim(2)).contiguous();
}

inline Trace write_trace(const std::filesystem::path& folder, const Model& model, const TestRun& run) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  auto writer = must(TraceWriter::create(folder, Json{{"plan", to_json(run.plan)}, {"hello", run.hello}, {"model", Json::object()}}));
  std::map<std::string, Tensor> weights, before, earlier_inputs;
  for (const auto& name : model.weight_names()) weights[name] = must(model.weight(name)).to_f32().cast(run.dtype);
  std::int64_t fed = 0;
  for (std::size_t s = 0; s < run.plan.chunks.size(); ++s) {
    const auto begin = run.plan.reprefill ? 0 : fed;
    fed += run.plan.chunks[s];
    if (run.plan.reprefill) before.clear();
    NodeContext context;
    context.facts = &model.facts();
    context.dtype = run.dtype;
    for (std::size_t row = 0; row < run.plan.sequences.size(); ++row) {
      context.at.sequence.push_back(run.plan.sequence_ids.empty() ? static_cast<int>(row) : run.plan.sequence_ids[row]);
      context.at.position.emplace_back();
      context.at.slot.emplace_back();
      for (auto i = begin; i < fed; ++i) context.at.position.back().push_back(run.plan.position_base + i);
      for (std::int64_t i = 0; i < fed; ++i) context.at.slot.back().push_back(run.plan.position_base + i);
      const auto& ids = run.plan.sequences[row];
      context.tokens.emplace_back(ids.begin() + begin, ids.begin() + fed);
    }
    std::map<std::string, Tensor> now;
    const auto step = static_cast<int>(s);
    for (const auto& node : model.graph().nodes()) {
      std::vector<Array> inputs;
      for (const auto& name : node.inputs) inputs.push_back(to_array(now.at(name)));
      const auto previous = before.contains(node.output) ? before.at(node.output) : Tensor();
      context.weight = node.weight.empty() ? Tensor() : weights.at(node.weight);
      context.bias = node.bias.empty() ? Tensor() : weights.at(node.bias);
      context.cache = state_before(node, context, begin == 0 ? Tensor() : previous, earlier_inputs[node.output]);
      auto result = run.engine ? run.engine(node, inputs, context)
                               : to_tensor(must(evaluate_node(node, inputs, context)), output_dtype(node, run.dtype));
      if (node.op == Op::causal_conv) earlier_inputs[node.output] = with_appended(context.cache, now.at(node.inputs[0]));
      if (run.touch) result = run.touch(node, step, result, previous);
      now[node.output] = result;
      if (!run.records || run.records(step, node.output)) writer.add(step, node.output, result, context.at);
    }
    before = now;
    must(writer.end_step());
  }
  must(writer.finish(Json::object()));
  return must(Trace::open(folder));
}

/// The tiny random llama with `layers` layers.
inline Model tiny_model(const std::filesystem::path& folder, int layers = 2, Facts facts = tiny_llama_facts()) {
  RandomModel spec{.facts = std::move(facts)};
  spec.facts.layers = layers;
  must(write_random_model(folder, spec));
  return must(Model::open(folder));
}

/// What has every op and every parameter of one between them, in any number of layers: llama, qwen2 with its biases, gemma3 with a window
/// that cuts off and capped logits, gemma4 with its full layers, experts, and a gated delta rule.
inline std::vector<Facts> facts_of_every_op() {
  auto gemma = find_architecture("gemma3")->tiny();
  gemma.window = 2;
  gemma.full_every = 2;
  gemma.logit_softcap = 3;
  auto gemma4 = find_architecture("gemma4")->tiny();
  gemma4.full_every = 1;
  gemma4.kv_shared_layers = 0;
  return {tiny_llama_facts(),
          find_architecture("qwen2")->tiny(),
          gemma,
          gemma4,
          find_architecture("qwen3_moe")->tiny(),
          find_architecture("qwen3_5_moe")->tiny()};
}

}  // namespace culprit
