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
#include "engines/kit/row_batches.h"
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
    CULPRIT_CHECK(check_sync_taps());
    for (const auto& node : graph().nodes()) {
      for (const auto& input : node.inputs) last_use_[input] = node.output;
      const auto matches = [&](const std::string& pattern) { return glob_match(pattern, node.output); };
      if (std::ranges::any_of(plan_.capture, matches)) captured_.insert(node.output);
    }
    return fixups_.prepare(graph());
  }

  Result<RunOutcome> run(TraceWriter& trace, const std::function<void(int)>& on_step) {
    RunOutcome outcome;
    RowBatches batches(plan_, cache_);
    for (int step = 0; step < steps_of(plan_); ++step) {
      if (plan_.reprefill) batches.clear();
      CULPRIT_TRY(batch_, batches.at_step(backend_, step));
      CULPRIT_CHECK(check_caches());
      foreign_ = foreign_at(plan_, step);
      begin_ = static_cast<int>(batch_->layout.next());
      end_ = begin_ + kept_at(plan_, step);
      CULPRIT_TRY(auto argmax, run_step(step, trace));
      outcome.argmax.push_back(std::move(argmax));
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
    for (int layer = 0; layer < facts().layers; ++layer)
      if (const int channels = facts_of_layer(facts(), layer).head_channels; channels % cache_.group != 0)
        return fail("not-supported", fmt::format("the cache {} has groups of {} channels, which do not divide a head's {}", cache_.text(),
                                                 cache_.group, channels));
    return {};
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

  Result<void> check_sync_taps() const {
    for (const auto& text : plan_.sync_taps) {
      auto alone = plan_;
      alone.sync_taps = {text};
      const auto acts = [&](const Node& node) {
        for (int step = 0; step < steps_of(plan_); ++step)
          if (syncs_after(alone, node.output, step)) return true;
        return false;
      };
      if (std::ranges::none_of(graph().nodes(), acts))
        return fail("tap-unknown", fmt::format("no tap of the decode graph matches '{}'", text));
    }
    return {};
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

  // Rows of a step are counted as they lie in its batch, and its tokens by the columns of the batch's caches.
  std::size_t rows() const { return batch_->rows.size(); }
  /// How many tokens of a row come before a column's; negative: it is padding.
  std::int64_t number(std::size_t row, std::int64_t column) const {
    return column + batch_->shift[row] - padding_of(plan_, batch_->rows[row]);
  }
  /// Position of a row's token; padding has those before the first token's.
  std::int64_t position(std::size_t row, std::int64_t column) const { return plan_.position_base + number(row, column); }

  /// Of this step, whose tokens the batch's layout holds.
  Coordinates coordinates() const {
    Coordinates at;
    for (std::size_t row = 0; row < rows(); ++row) {
      at.sequence.push_back(sequence_of(plan_, batch_->rows[row]));
      auto& positions = at.position.emplace_back();
      for (int i = begin_; i < end_ + foreign_; ++i) positions.push_back(position(row, i));
      at.slot.push_back(positions_of(batch_->layout.live_slots(), row));
    }
    return at;
  }

  /// Positions of cache slots that hold the tokens of these columns; -1 where that is padding.
  std::vector<std::int64_t> positions_of(const std::vector<std::int64_t>& columns, std::size_t row) const {
    std::vector<std::int64_t> positions;
    for (const auto column : columns) positions.push_back(number(row, column) < 0 ? -1 : position(row, column));
    return positions;
  }

  std::vector<std::vector<int>> tokens_of_step(int step) const {
    std::vector<std::vector<int>> tokens;
    for (std::size_t row = 0; row < rows(); ++row) {
      auto& ids = tokens.emplace_back();
      const auto& sequence = plan_.sequences[batch_->rows[row]];
      for (int i = begin_; i < end_; ++i)
        ids.push_back(number(row, i) < 0 ? kPaddingToken : sequence[static_cast<std::size_t>(number(row, i))]);
      const auto foreign = foreign_tokens(plan_, step, row);
      ids.insert(ids.end(), foreign.begin(), foreign.end());
    }
    return tokens;
  }

  Result<void> take_back(int tokens) {
    CULPRIT_CHECK(batch_->states.settle(backend_, end_ + foreign_ - begin_, tokens));
    if (tokens == 0) return {};
    CULPRIT_CHECK(batch_->layout.trim(tokens));
    for (auto& item : batch_->caches) CULPRIT_CHECK(item.second.trim(backend_, tokens));
    return check_caches();
  }

  Result<void> restore() {
    batch_->layout.drop_room();
    CULPRIT_CHECK(batch_->states.restore(backend_));
    for (auto& item : batch_->caches) CULPRIT_CHECK(item.second.restore(backend_));
    return check_caches();
  }

  /// Every layer's cache has the rows of the batch, and as many slots as its layout says.
  Result<void> check_caches() const {
    for (const auto& item : batch_->caches)
      CULPRIT_CHECK(check_cache(item.first, item.second, item.second.live(), batch_->layout.live_slots()));
    return {};
  }
  Result<void> check_cache(const std::string& tap, const KvCache& cache, const Array& held, const std::vector<std::int64_t>& slots) const {
    const auto shape = held == nullptr ? Shape{static_cast<std::int64_t>(rows()), 0, 0, 0} : backend_.shape(held);
    const auto next = batch_->layout.next();
    if (cache.layout().next() == next && shape[2] == static_cast<std::int64_t>(slots.size()) &&
        shape[0] == static_cast<std::int64_t>(rows()))
      return {};
    return fail("engine-error",
                fmt::format("the cache should hold {} rows of {} slots up to token {}, and holds {} of {} up to token {}", rows(),
                            slots.size(), next, shape[0], shape[2], cache.layout().next()),
                tap);
  }

  bool per_row_offset() const { return variant_value("rope.offset") == "per_row" || has_row_offsets(plan_); }

  Result<Array> run_op(const Node& node, int step, const std::vector<std::vector<int>>& tokens, const Coordinates& at) {
    if (node.op == Op::cache_write) {
      auto& cache = batch_->caches.try_emplace(node.output, cache_, weights_.plan().dtype, plan_.poison).first->second;
      CULPRIT_TRY(auto read, cache.update(backend_, values_.at(node.inputs[0])));
      CULPRIT_CHECK(check_cache(node.output, cache, read, batch_->layout.live_slots()));
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
      const std::size_t elements = per_row_offset() ? rows() : 1;
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
    auto before = batch_->states.before(node.output);
    if (node.op == Op::delta_state) {
      if (before != nullptr) run.inputs.push_back(before);
      CULPRIT_TRY(run.mask, padding_mask(begin_));
      return {};
    }
    auto shape = backend_.shape(run.inputs[0]);
    shape[2] = backend_.shape(run.weight->dense)[1] - 1;
    if (before == nullptr) {
      CULPRIT_TRY(before, backend_.zeros(shape, weights_.plan().dtype));
    }
    if (shape[2] > 0) {
      CULPRIT_TRY(run.inputs[0], backend_.concatenate(std::vector{before, run.inputs[0]}, 2));
    }
    batch_->states.pass(node.output, run.inputs[0], shape[2], weights_.plan().dtype);
    CULPRIT_TRY(run.mask, padding_mask(begin_ - shape[2]));
    return {};
  }

  /// [row, token] of the tokens from column `first` to the end of this step: whether each is one; nullptr when all are sure to be.
  Result<Array> padding_mask(std::int64_t first) {
    if (!has_row_offsets(plan_)) return Array();
    const auto tokens = end_ + foreign_ - first;
    auto mask = Tensor::zeros(DType::boolean, {static_cast<std::int64_t>(rows()), tokens});
    for (std::size_t row = 0; row < rows(); ++row)
      for (std::int64_t i = 0; i < tokens; ++i)
        if (number(row, first + i) >= 0)
          mask.mutable_bytes()[row * static_cast<std::size_t>(tokens) + static_cast<std::size_t>(i)] = std::byte{1};
    return backend_.from_host(mask);
  }

  /// On the host, with padding and what came before the first token as 0.
  Result<Tensor> state_on_host(const Node& node, const Array& state) {
    CULPRIT_TRY(const auto tensor, backend_.to_host(state));
    if (node.op != Op::causal_conv || !has_row_offsets(plan_)) return tensor;
    auto values = tensor.values();
    const auto before = tensor.dim(2), channels = tensor.dim(3);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto vector = static_cast<std::int64_t>(i) / channels;
      if (number(static_cast<std::size_t>(vector / before), begin_ - before + vector % before) < 0) values[i] = 0;
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
      const bool is_packed = variant_of(node, step) == kQuantized;
      CULPRIT_TRY(call.context.weight, weights_.as_used(node.weight, is_packed));
      if (is_packed) call.packed = std::make_shared<const Weight>(rounded_scales(weights_.loaded().at(node.weight), weights_.plan().dtype));
    }
    if (!node.bias.empty()) {
      CULPRIT_TRY(call.context.bias, weights_.as_used(node.bias, false));
    }
    if (before.live != nullptr) {
      CULPRIT_TRY(call.context.cache, state_on_host(node, before.live));
      for (std::size_t row = 0; row < rows() && node.op == Op::cache_write; ++row)
        call.context.cache_slot.push_back(positions_of(before.slots, row));
    }
    CULPRIT_TRY(call.result, backend_.to_host(output));
    call.collapsed_rank = variant_value("rope.rank") == "3" ? 3 : 4;
    call.per_row_offset = per_row_offset() && rows() > 1;
    set_schedule(plan_, step, call);
    if (node.op == Op::cache_write) call.traced_slot = traced_slot_;
    if (node.op == Op::sdpa && leaves_slots_behind(plan_, cache_))
      for (std::size_t i = 1; i < call.inputs.size(); ++i) call.behind.push_back(behind_[node.inputs[i]].read(call.inputs[i]));
    return call;
  }

  Result<std::vector<int>> run_step(int step, TraceWriter& trace) {
    const auto tokens = tokens_of_step(step);
    batch_->layout.append(end_ + foreign_ - begin_);
    const auto at = coordinates();
    if (traced_slot_ < 0 && at.tokens() == 1) traced_slot_ = std::ssize(at.slot[0]) - 1;
    masks_.clear();
    values_.clear();
    std::map<std::string, std::string> notes;
    const Node* last = nullptr;
    for (const auto& node : graph().nodes()) {
      if (plan_.sync == Sync::each_layer && last != nullptr && node.layer != last->layer && syncs_after(plan_, last->output, step))
        CULPRIT_CHECK(eval_all());
      last = &node;
      Stored before;
      const auto& caches = batch_->caches;
      if (const auto cache = caches.find(node.output); cache != caches.end() && fixups_.touches(node, step))
        before = {cache->second.live(), cache->second.stored_slots()};
      if (node.op == Op::causal_conv || node.op == Op::delta_state) before.live = batch_->states.before(node.output);
      CULPRIT_TRY(auto output, run_op(node, step, tokens, at));
      if (fixups_.touches(node, step)) {
        CULPRIT_TRY(auto call, host_call(node, step, output, before, tokens, at));
        CULPRIT_TRY(auto fixed, fixups_.apply(call, step));
        if (fixed.output != nullptr) {
          output = fixed.output;
          notes[node.output] = fixed.note;
          if (node.op == Op::cache_write) CULPRIT_CHECK(batch_->caches.at(node.output).overwrite(backend_, output));
        }
      }
      if (node.op == Op::delta_state) batch_->states.pass(node.output, output, 1, output_dtype(node, weights_.plan().dtype));
      if (syncs_after(plan_, node.output, step)) {
        if (plan_.sync == Sync::each_op) CULPRIT_CHECK(backend_.eval(std::span(&output, 1)));
        if (plan_.sync == Sync::async) CULPRIT_CHECK(backend_.async_eval(std::span(&output, 1)));
      }
      values_[node.output] = std::move(output);
      // What nobody records is let go after its last use, as in a plain decode loop: engines reuse such buffers.
      for (const auto& input : node.inputs)
        if (last_use_.at(input) == node.output && !is_captured(input, step)) values_.erase(input);
    }
    batch_->layout.settle();
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
  RowBatch* batch_ = nullptr;                    // of this step
  std::map<int, Array> masks_;                   // of this step, by window
  std::map<std::string, std::string> last_use_;  // of a tap: the last node that takes it
  std::set<std::string> captured_;
  std::map<std::string, Array> values_;        // outputs of this step by tap
  int begin_ = 0, end_ = 0;                    // tokens fed for good at this step, by column
  int foreign_ = 0;                            // tokens fed behind them
  std::int64_t traced_slot_ = -1;              // as OpCall has it
  std::map<std::string, SlotsBehind> behind_;  // by cache tap, where faults may need it
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
