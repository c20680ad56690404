#include "engines/kit/graph_runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/file.h"
#include "decode/facts_json.h"
#include "engines/kit/attention_mask.h"
#include "engines/kit/fixups.h"
#include "engines/kit/kv_cache.h"
#include "trace/trace.h"

namespace culprit::kit {

namespace {

/// [row, head, token, channel] -> [row, token, head * channel]; anything else as it is.
Result<Array> merged_heads(Backend& backend, const Array& x) {
  const auto shape = backend.shape(x);
  if (shape.size() != 4) return x;
  CULPRIT_TRY(const auto swapped, backend.swap_axes(x, 1, 2));
  return backend.reshape(swapped, {shape[0], shape[2], shape[1] * shape[3]});
}

}  // namespace

Result<Array> run_node(Backend& backend, const NodeRun& run) {
  const auto& node = *run.node;
  auto inputs = run.inputs;
  const auto shape = inputs.empty() ? Shape{} : backend.shape(inputs[0]);
  if (node.op == Op::linear) {
    CULPRIT_TRY(inputs[0], merged_heads(backend, inputs[0]));
  }
  const bool collapsed = node.op == Op::rope && run.rank == 3;
  if (collapsed) {
    CULPRIT_TRY(inputs[0], backend.reshape(inputs[0], {shape[0] * shape[1], shape[2], shape[3]}));
  }
  OpRequest request;
  request.node = &node;
  request.facts = run.facts;
  request.variant = run.variant;
  request.inputs = inputs;
  request.weight = run.weight;
  request.bias = run.bias;
  request.dtype = run.dtype;
  request.tokens = run.tokens;
  request.offset = run.offset;
  request.causal = run.causal;
  request.mask = run.mask;
  request.scale = attention_scale(*run.facts);
  CULPRIT_TRY(auto output, backend.apply(request));
  if (collapsed) return backend.reshape(output, shape);
  if ((node.op == Op::linear || node.op == Op::embedding || node.op == Op::slice) && node.heads_out > 0) {
    CULPRIT_TRY(output, merged_heads(backend, output));
    const auto flat = backend.shape(output);
    CULPRIT_TRY(const auto split, backend.reshape(output, {flat[0], flat[1], node.heads_out, flat[2] / node.heads_out}));
    return backend.swap_axes(split, 1, 2);
  }
  return output;
}

namespace {

constexpr std::string_view kQuantized = "quantized";  // the variant that takes packed weights

/// One run: the state that lives from step to step.
class Runner {
 public:
  Runner(Backend& backend, WeightSet& weights, const RunPlan& plan)
      : backend_(backend), weights_(weights), plan_(plan), fixups_(backend, plan) {}

  Result<void> check() {
    CULPRIT_CHECK(validate(plan_));
    CULPRIT_CHECK(validate_tokens(plan_, facts().vocabulary));
    CULPRIT_TRY(cache_, CacheSpec::parse(plan_.cache));
    CULPRIT_CHECK(check_quantised_cache());
    for (const auto& setting : plan_.variants) {
      const std::string &key = setting.first, &value = setting.second;  // clang 14 has no lambdas over structured bindings
      if (key == "rope.rank" && (value == "3" || value == "4")) continue;
      if (key == "rope.offset" && (value == "scalar" || value == "per_row")) continue;
      const auto op = parse_op(key);
      if (!op) return fail("plan-invalid", fmt::format("'{}={}' is not a variant of any op", key, value));
      CULPRIT_CHECK(check_offered(*op, value));
      const auto can_run = [&](const Node& node) { return node.op == *op && has_form(node, value); };
      if (std::ranges::none_of(graph().nodes(), can_run))
        return fail("not-supported", fmt::format("no {} of this model has a quantised weight, so there is none to run as {}", key, value));
    }
    if (variant_value("rope.rank") == "3" && variant_value("rope.offset") == "per_row")
      return fail("plan-invalid", "rope.rank=3 has rows and heads in one dimension, so an offset for each row has no meaning");
    for (const auto& intervention : plan_.interventions) {
      if (intervention.kind != Intervention::Kind::variant) continue;
      for (const auto& node : graph().nodes()) {
        if (!glob_match(intervention.tap, node.output)) continue;
        CULPRIT_CHECK(check_offered(node.op, intervention.variant));
        if (!has_form(node, intervention.variant))
          return fail("not-supported",
                      fmt::format("the weight of {} is not quantised, so it cannot run as {}", node.output, intervention.variant));
      }
    }
    for (const auto& pattern : plan_.capture)
      if (std::ranges::none_of(graph().nodes(), [&](const Node& node) { return glob_match(pattern, node.output); }))
        return fail("tap-unknown", fmt::format("no tap of the decode graph matches '{}'", pattern));
    for (const auto& node : graph().nodes()) {
      for (const auto& input : node.inputs) last_use_[input] = node.output;
      const auto matches = [&](const std::string& pattern) { return glob_match(pattern, node.output); };
      if (std::ranges::any_of(plan_.capture, matches)) captured_.insert(node.output);
    }
    return fixups_.prepare(graph());
  }

  Result<RunOutcome> run(TraceWriter& trace, const std::function<void(int)>& on_step) {
    RunOutcome outcome;
    layout_ = CacheLayout(cache_);
    for (int step = 0; step < steps_of(plan_); ++step) {
      if (plan_.reprefill) {
        caches_.clear();
        states_.clear();
        layout_ = CacheLayout(cache_);
      }
      foreign_ = foreign_at(plan_, step);
      begin_ = static_cast<int>(layout_.next());
      end_ = begin_ + kept_at(plan_, step);
      CULPRIT_TRY(auto argmax, run_step(step, trace));
      outcome.argmax.push_back(std::move(argmax));
      CULPRIT_CHECK(settle_states(taken_back_after(plan_, step)));
      CULPRIT_CHECK(take_back(taken_back_after(plan_, step)));
      if (std::ranges::find(plan_.restore_after, step) != plan_.restore_after.end()) CULPRIT_CHECK(restore());
      CULPRIT_CHECK(trace.end_step());
      ++outcome.steps;
      if (on_step) on_step(step);
    }
    return outcome;
  }

 private:
  const Graph& graph() const { return weights_.model().graph(); }
  const Facts& facts() const { return weights_.model().facts(); }

  Result<void> check_quantised_cache() const {
    if (!cache_.quantizes()) return {};
    if (!backend_.quantises()) return fail("not-supported", "the engine has no ops that quantise and dequantise a cache");
    if (facts().head_channels % cache_.group == 0) return {};
    return fail("not-supported", fmt::format("the cache {} has groups of {} channels, which do not divide a head's {}", cache_.text(),
                                             cache_.group, facts().head_channels));
  }

  std::string variant_value(const std::string& key) const {
    const auto found = plan_.variants.find(key);
    return found == plan_.variants.end() ? std::string() : found->second;
  }

  Result<void> check_offered(Op op, const std::string& variant) const {
    const auto offered = backend_.variants(op);
    if (std::ranges::find(offered, variant) != offered.end()) return {};
    return fail("not-supported",
                fmt::format("{} has no variant '{}'; the engine offers {}", name_of(op), variant, fmt::join(offered, ", ")));
  }

  /// Whether the node's weight is there in the form that `variant` takes.
  bool has_form(const Node& node, const std::string& variant) const {
    return variant != kQuantized || (!node.weight.empty() && weights_.quantized(node.weight));
  }

  // Checkpoints mix quantised and dense tensors. As in any engine, `quantized` for the whole plan means those that are.
  std::string variant_of(const Node& node, int step) const {
    if (auto forced = fixups_.variant_for(node.output, step); !forced.empty()) return forced;
    if (auto chosen = variant_value(std::string(name_of(node.op))); !chosen.empty() && has_form(node, chosen)) return chosen;
    const auto offered = backend_.variants(node.op);
    return offered.empty() ? std::string("default") : offered.front();
  }

  /// Position of a row's token by its number in the order of feeding; padding has those before the first token's.
  std::int64_t position(std::size_t row, std::int64_t number) const { return plan_.position_base + number - padding_of(plan_, row); }

  /// Of this step, whose tokens `layout_` holds.
  Coordinates coordinates() const {
    Coordinates at;
    for (std::size_t row = 0; row < plan_.sequences.size(); ++row) {
      at.sequence.push_back(plan_.sequence_ids.empty() ? static_cast<int>(row) : plan_.sequence_ids[row]);
      auto& positions = at.position.emplace_back();
      for (int i = begin_; i < end_ + foreign_; ++i) positions.push_back(position(row, i));
      at.slot.push_back(positions_of(layout_.live_slots(), row));
    }
    return at;
  }

  /// Positions of cache slots that hold the tokens with these numbers; -1 where that is padding.
  std::vector<std::int64_t> positions_of(const std::vector<std::int64_t>& numbers, std::size_t row) const {
    std::vector<std::int64_t> positions;
    for (const auto number : numbers) positions.push_back(number < padding_of(plan_, row) ? -1 : position(row, number));
    return positions;
  }

  std::vector<std::vector<int>> tokens_of_step(int step) const {
    std::vector<std::vector<int>> tokens;
    for (std::size_t row = 0; row < plan_.sequences.size(); ++row) {
      auto& ids = tokens.emplace_back();
      const int padding = padding_of(plan_, row);
      for (int i = begin_; i < end_; ++i)
        ids.push_back(i < padding ? kPaddingToken : plan_.sequences[row][static_cast<std::size_t>(i - padding)]);
      const auto foreign = foreign_tokens(plan_, step, row);
      ids.insert(ids.end(), foreign.begin(), foreign.end());
    }
    return tokens;
  }

  Result<void> take_back(int tokens) {
    if (tokens == 0) return {};
    CULPRIT_CHECK(layout_.trim(tokens));
    for (auto& [tap, cache] : caches_) {
      CULPRIT_CHECK(cache.trim(backend_, tokens));
      CULPRIT_CHECK(check_cache(tap, cache, cache.live(), layout_.live_slots()));
    }
    return {};
  }

  Result<void> restore() {
    layout_.drop_room();
    for (auto& [tap, state] : states_) {
      CULPRIT_TRY(const auto copy, backend_.to_host(state));
      CULPRIT_TRY(state, backend_.from_host(copy.copy()));
    }
    for (auto& [tap, cache] : caches_) {
      CULPRIT_CHECK(cache.restore(backend_));
      CULPRIT_CHECK(check_cache(tap, cache, cache.live(), layout_.live_slots()));
    }
    return {};
  }

  /// Every layer's cache holds what the step's coordinates say, and as many slots of it.
  Result<void> check_cache(const std::string& tap, const KvCache& cache, const Array& held, const std::vector<std::int64_t>& slots) const {
    const auto length = held == nullptr ? 0 : backend_.shape(held)[2];
    if (cache.layout().next() == layout_.next() && length == static_cast<std::int64_t>(slots.size())) return {};
    return fail("engine-error",
                fmt::format("the cache should hold {} slots up to token {}, and holds {} up to token {}", slots.size(), layout_.next(),
                            length, cache.layout().next()),
                tap);
  }

  bool per_row_offset() const { return variant_value("rope.offset") == "per_row" || has_padding(plan_); }

  Result<Array> run_op(const Node& node, int step, const std::vector<std::vector<int>>& tokens, const Coordinates& at) {
    if (node.op == Op::cache_write) {
      auto& cache = caches_.try_emplace(node.output, cache_, weights_.plan().dtype, plan_.poison).first->second;
      CULPRIT_TRY(auto read, cache.update(backend_, values_.at(node.inputs[0])));
      CULPRIT_CHECK(check_cache(node.output, cache, read, layout_.live_slots()));
      return read;
    }
    NodeRun run;
    run.node = &node;
    run.facts = &facts();
    run.variant = variant_of(node, step);
    run.dtype = weights_.plan().dtype;
    for (const auto& input : node.inputs) run.inputs.push_back(values_.at(input));
    if (!node.weight.empty()) {
      CULPRIT_TRY(run.weight, weights_.for_engine(node.weight, run.variant == "quantized"));
    }
    if (!node.bias.empty()) {
      CULPRIT_TRY(const auto* bias, weights_.for_engine(node.bias, false));
      run.bias = bias->dense;
    }
    if (node.op == Op::embedding) run.tokens = tokens;
    if (node.op == Op::rope) {
      const std::size_t elements = per_row_offset() ? plan_.sequences.size() : 1;
      for (std::size_t row = 0; row < elements; ++row) run.offset.push_back(position(row, begin_));
      run.rank = variant_value("rope.rank") == "3" ? 3 : 4;
    }
    if (node.op == Op::sdpa) {
      run.causal = at.tokens() > 1;
      if (!masks_.contains(node.window)) {
        CULPRIT_TRY(masks_[node.window], attention_mask(backend_, at, node.window));
      }
      run.mask = masks_.at(node.window);
    }
    if (node.op == Op::causal_conv || node.op == Op::delta_state) CULPRIT_CHECK(add_state(node, run));
    return run_node(backend_, run);
  }

  /// What the node goes on from, and which tokens of its first input are padding.
  Result<void> add_state(const Node& node, NodeRun& run) {
    const auto state = states_.find(node.output);
    if (node.op == Op::delta_state) {
      if (state != states_.end()) run.inputs.push_back(state->second);
      CULPRIT_TRY(run.mask, padding_mask(begin_));
      return {};
    }
    const auto before = kernel_of(run) - 1;
    if (before > 0) {
      auto shape = backend_.shape(run.inputs[0]);
      shape[2] = before;
      Array earlier = state == states_.end() ? nullptr : state->second;
      if (earlier == nullptr) {
        CULPRIT_TRY(earlier, backend_.zeros(shape, weights_.plan().dtype));
      }
      CULPRIT_TRY(run.inputs[0], backend_.concatenate(std::vector{earlier, run.inputs[0]}, 2));
    }
    CULPRIT_TRY(run.mask, padding_mask(begin_ - before));
    return {};
  }
  std::int64_t kernel_of(const NodeRun& run) const { return backend_.shape(run.weight->dense)[1]; }

  /// [row, token] of the tokens from number `first` to the end of this step: whether each is one; nullptr when all are.
  Result<Array> padding_mask(std::int64_t first) {
    if (!has_padding(plan_)) return Array();
    const auto rows = static_cast<std::int64_t>(plan_.sequences.size()), tokens = end_ + foreign_ - first;
    auto mask = Tensor::zeros(DType::boolean, {rows, tokens});
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t i = 0; i < tokens; ++i)
        if (first + i >= padding_of(plan_, static_cast<std::size_t>(row)))
          mask.mutable_bytes()[static_cast<std::size_t>(row * tokens + i)] = std::byte{1};
    return backend_.from_host(mask);
  }

  /// Keeps all that a later step may go on from, until settle_states knows how many of this step's tokens stay.
  Result<void> keep_states(const Node& node, const Array& output) {
    if (node.op == Op::delta_state) {
      passed_[node.output] = output;
      return {};
    }
    CULPRIT_TRY(const auto* weight, weights_.for_engine(node.weight, false));
    auto shape = backend_.shape(values_.at(node.inputs[0]));
    shape[2] = backend_.shape(weight->dense)[1] - 1;
    if (shape[2] == 0) return {};
    CULPRIT_TRY(auto earlier, backend_.zeros(shape, weights_.plan().dtype));
    if (const auto state = states_.find(node.output); state != states_.end()) earlier = state->second;
    CULPRIT_TRY(passed_[node.output], backend_.concatenate(std::vector{earlier, values_.at(node.inputs[0])}, 2));
    return {};
  }

  /// Goes back `taken_back` tokens from the end of the step, which a state can as far as the step's beginning.
  Result<void> settle_states(int taken_back) {
    const std::int64_t fed = end_ + foreign_ - begin_, left = fed - taken_back;
    if (left < 0 && !passed_.empty())
      return fail("not-supported", fmt::format("a recurrent state cannot be taken back {} tokens after a step of {}", taken_back, fed));
    for (const auto& [tap, passed] : passed_) {
      const bool is_conv = graph().find(tap)->op == Op::causal_conv;
      const auto kept = is_conv ? backend_.shape(passed)[2] - fed : 1;
      if (left == 0) continue;  // as it was
      const auto begin = is_conv ? left : left - 1;
      CULPRIT_TRY(states_[tap], backend_.slice(passed, 2, begin, begin + kept));
    }
    passed_.clear();
    return {};
  }

  /// On the host, with padding and what came before the first token as 0.
  Result<Tensor> state_on_host(const Node& node, const Array& state) {
    CULPRIT_TRY(const auto tensor, backend_.to_host(state));
    if (node.op != Op::causal_conv || !has_padding(plan_)) return tensor;
    auto values = tensor.values();
    const auto before = tensor.dim(2), channels = tensor.dim(3);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto vector = static_cast<std::int64_t>(i) / channels;
      if (begin_ - before + vector % before < padding_of(plan_, static_cast<std::size_t>(vector / before))) values[i] = 0;
    }
    return Tensor::from_values(tensor.dtype(), tensor.shape(), values);
  }

  /// What a cache holds before a step's write.
  struct Stored {
    Array live;
    std::vector<std::int64_t> slots;
  };

  // The call as faults and exact interventions need it, on the host.
  Result<OpCall> host_call(const Node& node, int step, const Array& output, const Stored& before,
                           const std::vector<std::vector<int>>& tokens, const Coordinates& at) {
    OpCall call;
    call.node = &node;
    call.dtype = output_dtype(node, weights_.plan().dtype);
    for (const auto& input : node.inputs) {
      CULPRIT_TRY(call.inputs.emplace_back(), backend_.to_host(values_.at(input)));
    }
    call.context.facts = &facts();
    call.context.dtype = weights_.plan().dtype;
    call.context.tokens = tokens;
    call.context.at = at;
    call.context.cache_spec = cache_;
    if (!node.weight.empty()) {
      CULPRIT_TRY(call.context.weight, weights_.as_used(node.weight, variant_of(node, step) == kQuantized));
    }
    if (!node.bias.empty()) {
      CULPRIT_TRY(call.context.bias, weights_.as_used(node.bias, false));
    }
    if (before.live != nullptr) {
      CULPRIT_TRY(call.context.cache, state_on_host(node, before.live));
      for (std::size_t row = 0; row < plan_.sequences.size() && node.op == Op::cache_write; ++row)
        call.context.cache_slot.push_back(positions_of(before.slots, row));
    }
    CULPRIT_TRY(call.result, backend_.to_host(output));
    call.collapsed_rank = variant_value("rope.rank") == "3" ? 3 : 4;
    call.per_row_offset = per_row_offset() && plan_.sequences.size() > 1;
    return call;
  }

  Result<std::vector<int>> run_step(int step, TraceWriter& trace) {
    const auto tokens = tokens_of_step(step);
    layout_.append(end_ + foreign_ - begin_);
    const auto at = coordinates();
    masks_.clear();
    values_.clear();
    std::map<std::string, std::string> notes;
    int layer = -1;
    for (const auto& node : graph().nodes()) {
      if (plan_.sync == Sync::each_layer && node.layer != layer) CULPRIT_CHECK(eval_all());
      layer = node.layer;
      Stored before;
      if (const auto cache = caches_.find(node.output); cache != caches_.end() && fixups_.touches(node, step))
        before = {cache->second.live(), cache->second.stored_slots()};
      if (const auto state = states_.find(node.output); state != states_.end() && fixups_.touches(node, step)) before.live = state->second;
      CULPRIT_TRY(auto output, run_op(node, step, tokens, at));
      if (fixups_.touches(node, step)) {
        CULPRIT_TRY(auto call, host_call(node, step, output, before, tokens, at));
        CULPRIT_TRY(auto fixed, fixups_.apply(call, step));
        if (fixed.output != nullptr) {
          output = fixed.output;
          notes[node.output] = fixed.note;
          if (node.op == Op::cache_write) CULPRIT_CHECK(caches_.at(node.output).overwrite(backend_, output));
        }
      }
      if (node.op == Op::causal_conv || node.op == Op::delta_state) CULPRIT_CHECK(keep_states(node, output));
      if (plan_.sync == Sync::each_op) CULPRIT_CHECK(backend_.eval(std::span(&output, 1)));
      values_[node.output] = std::move(output);
      // What nobody records is let go after its last use, as in a plain decode loop: engines reuse such buffers.
      for (const auto& input : node.inputs)
        if (last_use_.at(input) == node.output && !is_captured(input, step)) values_.erase(input);
    }
    layout_.settle();
    CULPRIT_CHECK(eval_all());
    for (const auto& node : graph().nodes()) {
      if (!is_captured(node.output, step)) continue;
      CULPRIT_TRY(const auto tensor, backend_.to_host(values_.at(node.output)));
      trace.add(step, node.output, tensor, at, notes[node.output], plan_.hash_only);
    }
    return last_argmax();
  }

  bool is_captured(const std::string& tap, int step) const {
    const bool wanted_step = plan_.capture_steps.empty() || std::ranges::find(plan_.capture_steps, step) != plan_.capture_steps.end();
    return wanted_step && captured_.contains(tap);
  }

  Result<void> eval_all() {
    std::vector<Array> all;
    for (const auto& [name, value] : values_) all.push_back(value);
    return backend_.eval(all);
  }

  // NaNs are passed over; -1 when there is nothing else.
  static int first_largest(const std::vector<double>& values) {
    int best = -1;
    for (int i = 0; i < static_cast<int>(values.size()); ++i)
      if (!std::isnan(values[i]) && (best < 0 || values[i] > values[best])) best = i;
    return best;
  }

  Result<std::vector<int>> last_argmax() {
    CULPRIT_TRY(const auto logits, backend_.to_host(values_.at("logits")));
    std::vector<int> best;
    for (std::int64_t row = 0; row < logits.dim(0); ++row) {
      const auto token = logits.dim(1) - (end_ > begin_ ? foreign_ : 0) - 1;
      const auto last = logits.sliced(0, row, row + 1).sliced(1, token, token + 1).values();
      best.push_back(first_largest(last));
    }
    return best;
  }

  Backend& backend_;
  WeightSet& weights_;
  const RunPlan& plan_;
  Fixups fixups_;
  CacheSpec cache_;
  CacheLayout layout_{CacheSpec{}};  // of every cache
  std::map<std::string, KvCache> caches_;
  std::map<std::string, Array> states_;          // of causal_conv and delta_state, by tap: what the next step goes on from
  std::map<std::string, Array> passed_;          // of this step, by tap: what it went through
  std::map<int, Array> masks_;                   // of this step, by window
  std::map<std::string, std::string> last_use_;  // of a tap: the last node that takes it
  std::set<std::string> captured_;
  std::map<std::string, Array> values_;  // outputs of this step by tap
  int begin_ = 0, end_ = 0;              // tokens fed for good at this step, by number
  int foreign_ = 0;                      // tokens fed behind them
};

}  // namespace

Result<RunOutcome> run_graph(Backend& backend, WeightSet& weights, const RunPlan& plan, const Json& hello,
                             const std::filesystem::path& folder, const std::function<void(int step)>& on_step) {
  Runner runner(backend, weights, plan);
  CULPRIT_CHECK(runner.check());
  const Json header = {{"plan", to_json(plan)},
                       {"load", to_json(weights.plan())},
                       {"hello", hello},
                       {"model", {{"path", weights.model().path().string()}, {"facts", to_json(weights.model().facts())}}}};
  CULPRIT_TRY(auto trace, TraceWriter::create(folder, header));
  CULPRIT_TRY(auto outcome, runner.run(trace, on_step));
  CULPRIT_CHECK(trace.finish({{"steps", outcome.steps}}));
  return outcome;
}

}  // namespace culprit::kit
