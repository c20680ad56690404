#include "audit/audit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "audit/bounded.h"
#include "audit/bounds.h"
#include "audit/cache_history.h"
#include "audit/items.h"
#include "audit/judge.h"
#include "audit/ops/linear.h"
#include "audit/quantized_cache.h"
#include "audit/recurrent_history.h"
#include "base/pool.h"
#include "decode/cache_spec.h"

namespace culprit {
namespace {

class Auditor {
 public:
  Auditor(const Model& model, UsedWeights& weights, const AuditOptions& options) : model_(model), weights_(weights), options_(options) {}

  Result<std::vector<AuditReport>> run(const std::vector<const Trace*>& traces) {
    for (const auto* trace : traces) {
      CULPRIT_TRY(auto audited, audited_trace(*trace));
      traces_.push_back(std::move(audited));
    }
    std::vector<AuditItem> items;
    for (std::size_t i = 0; i < traces_.size(); ++i) reports_.push_back(collect_items(model_, traces_, i, options_, items));
    std::vector<AuditItem> plain, linears, caches;
    for (auto& item : items)
      (item.node->op == Op::linear ? linears : item.node->op == Op::cache_write ? caches : plain).push_back(std::move(item));
    CULPRIT_CHECK(audit_plain(plain));
    CULPRIT_CHECK(audit_caches(caches));
    CULPRIT_CHECK(audit_linears(linears));
    return std::move(reports_);
  }

 private:
  OpAudit& entry(const AuditItem& item) { return reports_[item.trace].ops[item.place]; }
  Result<Tensor> values(const AuditItem& item, const TapRecord& record) const { return traces_[item.trace].trace->tensor(record); }

  // Judges when the shape is what the graph says; else the op is wrong whatever it holds.
  void judge_shaped(const AuditItem& item, const Bounded& expected, const Tensor& actual) {
    auto& audit = entry(item);
    if (expected.value.shape == actual.shape()) return judge(expected, actual, audit);
    audit.count = audit.over = std::max<std::int64_t>(1, actual.count());
    audit.reason = fmt::format("expected shape {}, actual {}", to_string(expected.value.shape), to_string(actual.shape()));
    conclude(audit);
  }

  // Runs `work` over the items in parallel; the first error in item order is returned, so that it does not depend on threads.
  template <class Work>
  Result<void> for_items(const std::vector<AuditItem>& items, Work&& work) {
    std::mutex guard;
    std::map<std::size_t, Error> errors;
    parallel_for(
        items.size(), 4,
        [&](std::size_t begin, std::size_t end) {
          for (std::size_t i = begin; i < end; ++i)
            if (Result<void> done = work(items[i]); !done) {
              const std::lock_guard lock(guard);
              errors.emplace(i, std::move(done).error());
            }
        },
        options_.threads);
    if (!errors.empty()) return tl::unexpected(errors.begin()->second);
    return {};
  }

  /// A weight as an item's variant used it.
  Result<QuantizedValues> used_weight(const std::string& name, bool is_quantized) {
    if (is_quantized) {
      CULPRIT_TRY(auto quantized, weights_.quantized(name));
      if (quantized) return *std::move(quantized);
    }
    QuantizedValues weight;
    CULPRIT_TRY(weight.value, weights_.dense(name));
    return weight;
  }

  Result<void> audit_plain(const std::vector<AuditItem>& items) {
    std::map<std::pair<std::string, bool>, QuantizedValues> weights;
    const auto is_quantized = [&](const AuditItem& item) { return entry(item).variant == "quantized"; };
    for (const auto& item : items)
      for (const auto* name : {&item.node->weight, &item.node->bias}) {
        const std::pair key(*name, name == &item.node->weight && is_quantized(item));
        if (name->empty() || weights.contains(key)) continue;
        CULPRIT_TRY(weights[key], used_weight(key.first, key.second));
      }
    CULPRIT_TRY(const auto states, states_before(items));
    return for_items(items, [&](const AuditItem& item) -> Result<void> {
      NodeContext context;
      context.facts = &model_.facts();
      context.dtype = (item.inputs.empty() ? item.output : item.inputs.front())->layout.dtype;  // of the run: outputs may be wider
      context.at = item.output->at;
      if (item.node->op == Op::embedding) {
        CULPRIT_TRY(context.tokens, tokens_at(traces_[item.trace].plan, item.output->step, context.at));
      }
      Tensor magnitude;
      if (!item.node->weight.empty()) {
        const auto& weight = weights.at({item.node->weight, is_quantized(item)});
        context.weight = weight.value;
        magnitude = weight.magnitude;
      }
      if (!item.node->bias.empty()) context.bias = weights.at({item.node->bias, false}).value;
      std::vector<Array> inputs;
      for (const auto* record : item.inputs) {
        CULPRIT_TRY(const auto tensor, values(item, *record));
        inputs.push_back(to_array(tensor));
      }
      CULPRIT_TRY(const auto actual, values(item, *item.output));
      if (has_state(item.node->op)) {
        const auto& before = states.at({item.trace, item.place});
        if (!before) {
          entry(item).reason = "what it went on from was not recorded";
          return {};
        }
        context.cache = *before;
        if (item.node->op == Op::delta_state) context.cache = before_each_token(*before, actual);
      }
      const auto chosen = item.node->op == Op::route ? to_array(actual) : Array{};
      const auto expected = bounded_node(*item.node, inputs, context, actual.dtype(), item.arithmetic, magnitude, &chosen);
      if (!expected) {  // inputs whose shapes do not fit are another op's doing
        entry(item).reason = expected.error().message;
        return {};
      }
      judge_shaped(item, *expected, actual);
      return {};
    });
  }

  /// What ops with a recurrent state went on from, by trace and place in its report; none where it was not recorded. It follows from what was
  /// recorded at earlier positions: of a convolution the inputs, of a state itself.
  Result<std::map<std::pair<std::size_t, std::size_t>, std::optional<Tensor>>> states_before(const std::vector<AuditItem>& items) {
    std::map<std::pair<std::size_t, std::size_t>, std::optional<Tensor>> states;
    std::map<std::pair<std::size_t, int>, std::vector<const AuditItem*>> of_node;
    for (const auto& item : items)
      if (has_state(item.node->op)) of_node[{item.trace, entry(item).node}].push_back(&item);
    for (const auto& [key, steps] : of_node) {
      const auto& [trace, plan] = traces_[key.first];
      const auto& node = *steps.front()->node;
      const bool is_conv = node.op == Op::causal_conv;
      const auto& source = is_conv ? node.inputs.front() : node.output;
      RecurrentHistory history(plan.position_base, is_conv ? model_.facts().delta->kernel - 1 : 1);
      auto next = steps.begin();
      std::set<int> all_steps;
      for (const auto& record : trace->records()) all_steps.insert(record.step);
      for (const int step : all_steps) {
        if (plan.reprefill) history.clear();
        const auto* record = trace->find(step, source);
        if (next != steps.end() && entry(**next).step == step) {
          const auto& item = **next++;
          states[{item.trace, item.place}] = history.before(item.output->at, trace->find(step, source)->layout);
        }
        if (record == nullptr || record->file.empty()) {
          if (record != nullptr) history.forget(record->at);
          continue;
        }
        CULPRIT_TRY(const auto written, trace->tensor(*record));
        history.write(record->at, written);
      }
    }
    return states;
  }

  /// The state before each token of a step: `first`, then what was recorded for the tokens before.
  static Tensor before_each_token(const Tensor& first, const Tensor& recorded) {
    if (recorded.rank() != 4 || first.rank() != 4 || recorded.dim(2) < 2) return first;
    if (first.dim(0) != recorded.dim(0) || first.dim(1) != recorded.dim(1) || first.dim(3) != recorded.dim(3)) return first;
    auto all = Tensor::zeros(recorded.dtype(), recorded.shape());
    const auto from = recorded.contiguous(), start = first.cast(recorded.dtype());
    const auto vector = static_cast<std::size_t>(recorded.dim(3)) * size_of(recorded.dtype());
    const auto tokens = static_cast<std::size_t>(recorded.dim(2));
    const auto to = all.mutable_bytes();
    for (std::size_t head = 0; head < static_cast<std::size_t>(recorded.dim(0) * recorded.dim(1)); ++head) {
      std::ranges::copy(start.contiguous_bytes().subspan(head * vector, vector),
                        to.begin() + static_cast<std::ptrdiff_t>(head * tokens * vector));
      std::ranges::copy(from.contiguous_bytes().subspan(head * tokens * vector, (tokens - 1) * vector),
                        to.begin() + static_cast<std::ptrdiff_t>((head * tokens + 1) * vector));
    }
    return all;
  }

  // A cache must hold what was written to it at this and earlier steps, so its steps go in order; different caches are independent.
  Result<void> audit_caches(const std::vector<AuditItem>& items) {
    std::map<std::pair<std::size_t, int>, std::vector<const AuditItem*>> caches;
    for (const auto& item : items) caches[{item.trace, entry(item).node}].push_back(&item);
    for (const auto& [key, steps] : caches) {
      const auto& [trace, plan] = traces_[key.first];
      const auto& node = *steps.front()->node;
      CULPRIT_TRY(const auto spec, CacheSpec::parse(plan.cache));
      CacheHistory history;
      std::vector<CacheContent> contents(plan.sequences.size(), CacheContent(spec));  // of each row
      int fed = 0;                                                                    // steps
      auto next = steps.begin();
      std::set<int> all_steps;
      for (const auto& record : trace->records()) all_steps.insert(record.step);
      for (const int step : all_steps) {
        if (plan.reprefill) history.clear();
        for (; fed < step; ++fed) {
          feed_rows(plan, fed, contents);
          CULPRIT_CHECK(take_rows_back(plan, fed, contents));
        }
        feed_rows(plan, fed++, contents);
        const auto* input = trace->find(step, node.inputs.front());
        const auto* output = trace->find(step, node.output);
        if (input != nullptr && !input->file.empty()) {
          CULPRIT_TRY(const auto written, trace->tensor(*input));
          if (written.rank() == 4) history.write(input->at, written);
        } else if (input != nullptr || output != nullptr) {
          history.write_unknown((input != nullptr ? input : output)->at);
        }
        if (next != steps.end() && entry(**next).step == step) {
          CULPRIT_CHECK(audit_cache(**next, history, contents));
          ++next;
        }
        const auto taken_back = taken_back_after(plan, step);
        if (taken_back > 0 && (input != nullptr || output != nullptr))
          history.write_unknown(last_tokens((input != nullptr ? input : output)->at, taken_back));
        CULPRIT_CHECK(take_rows_back(plan, step, contents));
      }
    }
    return {};
  }

  static void feed_rows(const RunPlan& plan, int step, std::vector<CacheContent>& contents) {
    for (const auto row : rows_at(plan, step)) feed_step(plan, step, contents[row]);
  }
  static Result<void> take_rows_back(const RunPlan& plan, int step, std::vector<CacheContent>& contents) {
    for (const auto row : rows_at(plan, step)) CULPRIT_CHECK(contents[row].take_back(taken_back_after(plan, step)));
    return {};
  }

  /// The last `tokens` positions up to the step's last one; earlier steps may have fed them.
  static Coordinates last_tokens(Coordinates at, std::int64_t tokens) {
    for (auto& row : at.position) {
      if (row.empty()) continue;
      const auto end = row.back() + 1;
      row.clear();
      for (auto position = end - tokens; position < end; ++position) row.push_back(position);
    }
    return at;
  }

  /// Says which rows should be there and are not, which row was not fed the positions that are next, or whose live slots are not those that a
  /// cache of the plan's kind holds; empty when all are right.
  static std::string wrong_positions(const RunPlan& plan, int step, const Coordinates& at, const std::vector<CacheContent>& contents) {
    const auto rows = rows_at(plan, step);
    std::vector<int> sequences;
    for (const auto row : rows) sequences.push_back(sequence_of(plan, row));
    if (at.sequence != sequences)
      return fmt::format("the step feeds sequences {}, this cache has {}", fmt::join(sequences, ","), fmt::join(at.sequence, ","));
    for (std::size_t i = 0; i < at.slot.size(); ++i) {
      const auto row = rows[i];
      const auto first = contents[row].next() - kept_at(plan, step) - foreign_at(plan, step);
      for (std::size_t token = 0; token < at.position[i].size(); ++token)
        if (const auto next = plan.position_base + first + static_cast<std::int64_t>(token) - padding_of(plan, row);
            at.position[i][token] != next)
          return fmt::format("row {}: position {} is next, {} was fed", row, next, at.position[i][token]);
      std::vector<std::int64_t> expected, actual;
      for (const auto number : contents[row].read())
        if (number >= padding_of(plan, row)) expected.push_back(plan.position_base + number - padding_of(plan, row));
      for (const auto position : at.slot[i])
        if (position >= 0) actual.push_back(position);
      std::ranges::sort(actual);
      if (actual != expected)
        return fmt::format("row {}: a {} cache holds positions {} by now, this one {}", row, plan.cache, fmt::join(expected, ","),
                           fmt::join(actual, ","));
    }
    return {};
  }

  Result<void> audit_cache(const AuditItem& item, const CacheHistory& history, const std::vector<CacheContent>& contents) {
    auto& audit = entry(item);
    const auto& at = item.output->at;
    CULPRIT_TRY(const auto actual, values(item, *item.output));
    const auto facts = facts_of_layer(model_.facts(), item.node->layer);
    const Shape shape = {at.rows(), facts.kv_heads, at.slot.empty() ? 0 : static_cast<std::int64_t>(at.slot.front().size()),
                         facts.head_channels};
    if (actual.shape() != shape) {
      audit.count = audit.over = std::max<std::int64_t>(1, actual.count());
      audit.reason = fmt::format("expected shape {}, actual {}", to_string(shape), to_string(actual.shape()));
      conclude(audit);
      return {};
    }
    if (auto reason = wrong_positions(traces_[item.trace].plan, item.output->step, at, contents); !reason.empty()) {
      audit.count = audit.over = std::max<std::int64_t>(1, actual.count());
      audit.reason = std::move(reason);
      conclude(audit);
      return {};
    }
    const auto expected = history.expect(at, actual.dtype(), shape);
    CULPRIT_TRY(const auto spec, CacheSpec::parse(traces_[item.trace].plan.cache));
    if (spec.quantizes()) return judge_quantized(expected, spec, actual, audit);
    judge_moved(expected.values, expected.known, actual, audit);
    note_unknown(expected, audit);
    return {};
  }

  static void note_unknown(const CacheHistory::Expected& expected, OpAudit& audit) {
    if (expected.live_unknown > 0)
      audit.reason = fmt::format("{} live slots were not tested: what was written to them was not recorded", expected.live_unknown);
  }

  static Result<void> judge_quantized(const CacheHistory::Expected& written, const CacheSpec& spec, const Tensor& actual, OpAudit& audit) {
    if (!is_float(actual.dtype()) || actual.dim(3) % spec.group != 0) {
      audit.reason = fmt::format("groups of {} channels do not divide a {} head of {}", spec.group, name_of(actual.dtype()), actual.dim(3));
      return {};
    }
    audit.variant = "quantized";  // a bound of its own, apart from that of values that are only moved
    const auto expected = quantized_cache_bounds(written, spec, actual.dtype(), &actual);
    judge(expected, actual, audit);
    const auto channels = static_cast<std::size_t>(actual.dim(3));
    std::int64_t formless = 0;
    for (std::size_t i = 0; i < expected.untested.size(); ++i) formless += expected.untested[i] && written.known[i / channels] ? 1 : 0;
    if (formless > 0)
      audit.reason = fmt::format("{} groups were not tested: their values are not finite, or lie further apart than f32 reaches",
                                 formless / spec.group);
    note_unknown(written, audit);
    return {};
  }

  // Items that share a weight in one form, and arithmetic.
  using Group = std::tuple<std::string, std::string, bool, DType, DType, bool>;  // weight, bias, quantised, dtype, accumulate, in_dtype
  struct Parameters {
    QuantizedValues weight;
    Tensor bias;
  };

  Result<void> audit_linears(const std::vector<AuditItem>& items) {
    std::map<Group, std::vector<AuditItem>> groups;
    for (const auto& item : items)
      groups[{item.node->weight, item.node->bias, entry(item).variant == "quantized", item.output->layout.dtype, item.arithmetic.accumulate,
              item.arithmetic.in_dtype}]
          .push_back(item);
    for (const auto& [group, members] : groups) {
      const auto& [weight_name, bias_name, is_quantized, dtype, accumulate, in_dtype] = group;
      Parameters parameters;
      CULPRIT_TRY(parameters.weight, used_weight(weight_name, is_quantized));
      if (!bias_name.empty()) {
        CULPRIT_TRY(parameters.bias, weights_.dense(bias_name));
      }
      // A batch holds about as many results as fit in 100 MB with their bounds, and enough tokens to be worth reading the weight again.
      const auto batch_tokens = std::max<std::int64_t>(32, (std::int64_t{1} << 22) / parameters.weight.value.dim(0));
      std::vector<AuditItem> batch;
      std::int64_t tokens = 0;
      for (const auto& item : members) {
        batch.push_back(item);
        tokens += item.output->at.rows() * item.output->at.tokens();
        if (tokens < batch_tokens && &item != &members.back()) continue;
        CULPRIT_CHECK(audit_batch(batch, parameters));
        batch.clear();
        tokens = 0;
      }
    }
    return {};
  }

  Result<void> audit_batch(const std::vector<AuditItem>& batch, const Parameters& parameters) {
    const auto& weight = parameters.weight;
    std::vector<double> x;
    std::map<const AuditItem*, std::pair<std::int64_t, Shape>> starts;  // first token in x, and [row, token]
    const std::int64_t in = weight.value.dim(1), out = weight.value.dim(0);
    for (const auto& item : batch) {
      CULPRIT_TRY(const auto tensor, values(item, *item.inputs.front()));
      auto input = to_array(tensor);
      if (input.shape.size() == 4) input = merge_heads(input);
      if (input.shape.size() != 3 || input.shape[2] != in) {
        entry(item).reason =
            fmt::format("{} is {} and the weight {}", item.node->inputs.front(), to_string(input.shape), to_string(weight.value.shape()));
        continue;
      }
      starts[&item] = {static_cast<std::int64_t>(x.size()) / in, {input.shape[0], input.shape[1]}};
      x.insert(x.end(), input.values.begin(), input.values.end());
    }
    if (x.empty()) return {};
    const auto& first = batch.front();
    const auto done = bounded_linear(x, static_cast<std::int64_t>(x.size()) / in, weight.value, weight.magnitude, parameters.bias,
                                     first.output->layout.dtype, first.arithmetic, options_.threads);
    return for_items(batch, [&](const AuditItem& item) -> Result<void> {
      const auto found = starts.find(&item);
      if (found == starts.end()) return {};
      const auto start = found->second.first;
      const auto& shape = found->second.second;
      const auto part = [&, begin = start * out, end = (start + shape[0] * shape[1]) * out](const std::vector<double>& all) {
        Array array{{shape[0], shape[1], out}, {all.begin() + begin, all.begin() + end}};
        return item.node->heads_out > 0 ? split_heads(array, item.node->heads_out) : array;
      };
      Bounded expected;
      expected.value = part(done.value);
      expected.bound = part(done.bound).values;
      if (!done.standard.empty()) expected.standard = part(done.standard).values;
      CULPRIT_TRY(const auto actual, values(item, *item.output));
      judge_shaped(item, expected, actual);
      if (entry(item).judgement == Judgement::corruption && expected.value.shape == actual.shape() && !item.arithmetic.in_dtype)
        reconsider(item, std::span(x).subspan(static_cast<std::size_t>(start * in), static_cast<std::size_t>(shape[0] * shape[1] * in)),
                   shape, parameters, actual);
      return {};
    });
  }

  // Outside of the default bound, but just as accumulation in the dtype would be: that is lower precision than declared, and not
  // corruption.
  void reconsider(const AuditItem& item, std::span<const double> x, const Shape& shape, const Parameters& parameters,
                  const Tensor& actual) {
    const auto& weight = parameters.weight;
    const auto dtype = actual.dtype();
    const Arithmetic in_dtype{.accumulate = DType::f32, .in_dtype = true, .declared = false};
    if (!units_of(dtype, in_dtype).in_dtype) return;
    const auto done =
        bounded_linear(x, shape[0] * shape[1], weight.value, weight.magnitude, parameters.bias, dtype, in_dtype, options_.threads);
    const auto flat = actual.rank() == 4 ? merge_heads(to_array(actual)) : to_array(actual);
    if (!errors_as_accumulated_in_dtype(done, flat.values)) return;
    const auto arranged = [&](const std::vector<double>& values) {
      Array array{{shape[0], shape[1], weight.value.dim(0)}, values};
      return item.node->heads_out > 0 ? split_heads(array, item.node->heads_out) : array;
    };
    const Bounded expected{arranged(done.value), arranged(done.bound).values, arranged(done.standard).values, {}, {}};
    auto& audit = entry(item);
    OpAudit again;
    again.node = audit.node;
    again.step = audit.step;
    again.variant = audit.variant;
    again.assumed = audit.assumed;
    judge(expected, actual, again);
    if (again.judgement != Judgement::precision) return;
    again.reason =
        fmt::format("accumulates in {}, which is less than {} f32", name_of(dtype), audit.assumed ? "the assumed" : "the declared");
    audit = std::move(again);
  }

  const Model& model_;
  UsedWeights& weights_;
  const AuditOptions& options_;
  std::vector<AuditedTrace> traces_;
  std::vector<AuditReport> reports_;
};

}  // namespace

Result<std::optional<QuantizedValues>> UsedWeights::quantized(const std::string& /*canonical*/) { return std::nullopt; }
Result<std::optional<Weight>> UsedWeights::packed(const std::string& /*canonical*/) { return std::nullopt; }

Judgement AuditReport::worst() const {
  // From the worst on; an audit that tested nothing is not one that found nothing.
  for (const auto judgement : {Judgement::corruption, Judgement::precision, Judgement::within, Judgement::vacuous})
    if (std::ranges::any_of(ops, [&](const OpAudit& op) { return op.judgement == judgement; })) return judgement;
  return Judgement::not_tested;
}

Result<std::vector<AuditReport>> audit(const Model& model, UsedWeights& weights, const std::vector<const Trace*>& traces,
                                       const AuditOptions& options) {
  return Auditor(model, weights, options).run(traces);
}

}  // namespace culprit
