#include "locate/recorded_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "audit/items.h"
#include "audit/recurrent_history.h"
#include "engine/plan.h"

namespace culprit {

Tensor with_layout(const Tensor& values, const Layout& layout, double unknown) {
  if (layout.is_contiguous() || layout.strides.size() != layout.shape.size()) return values;
  std::int64_t low = 0, high = 0;  // reach of the view around its first element
  for (std::size_t axis = 0; axis < layout.shape.size(); ++axis) {
    const auto reach = (layout.shape[axis] - 1) * layout.strides[axis];
    (reach < 0 ? low : high) += reach;
  }
  const auto places = static_cast<std::size_t>(high - low + 1);
  auto storage = std::make_shared<std::vector<std::byte>>(places * size_of(layout.dtype));
  for (std::size_t i = 0; i < places; ++i) store(layout.dtype, storage->data() + i * size_of(layout.dtype), unknown);
  for_each_index(layout.shape, [&](std::span<const std::int64_t> index) {
    std::int64_t place = -low;
    for (std::size_t axis = 0; axis < index.size(); ++axis) place += index[axis] * layout.strides[axis];
    store(layout.dtype, storage->data() + static_cast<std::size_t>(place) * size_of(layout.dtype), values.at(index));
  });
  Layout laid = layout;
  laid.offset = -low;
  const std::span<const std::byte> bytes(*storage);
  auto wrapped = Tensor::wrap(storage, bytes, laid);
  return wrapped ? *std::move(wrapped) : values;
}

namespace {

/// Writes into the storage behind a cache's view what earlier steps had there: tokens that were taken back stay in the buffer, unseen. Steps
/// share a buffer while its strides stay and neither rows nor a copy make it anew.
Result<Tensor> with_taken_back(Tensor laid, const Trace& trace, const RunPlan& plan, int step, const TapRecord& record) {
  if (laid.layout().is_contiguous() || laid.rank() != 4 || plan.reprefill) return laid;
  const auto& shape = record.layout.shape;
  const auto& strides = record.layout.strides;
  const auto size = size_of(laid.dtype());
  std::shared_ptr<std::vector<std::byte>> storage;
  auto filled = shape[2];  // slots that hold what is known
  for (int later = step; later > 0 && !rows_changed_at(plan, later) && !restored_before(plan, later); --later) {
    const auto* before = trace.find(later - 1, record.tap);
    if (before == nullptr || before->layout.strides != strides || before->layout.shape[0] != shape[0]) break;
    const auto held = before->layout.shape[2];
    if (held <= filled) continue;
    if (storage == nullptr) storage = std::make_shared<std::vector<std::byte>>(laid.storage().begin(), laid.storage().end());
    CULPRIT_TRY(const auto values, trace.tensor(*before));
    for_each_index({shape[0], shape[1], held - filled, shape[3]}, [&](std::span<const std::int64_t> i) {
      const auto slot = filled + i[2];
      const auto place = laid.layout().offset + i[0] * strides[0] + i[1] * strides[1] + slot * strides[2] + i[3] * strides[3];
      const auto at = static_cast<std::size_t>(place) * size;  // behind the last head's slots the storage ends
      if (at + size <= storage->size()) store(laid.dtype(), storage->data() + at, values.at({i[0], i[1], slot, i[3]}));
    });
    filled = held;
  }
  if (storage == nullptr) return laid;
  return Tensor::wrap(storage, std::span<const std::byte>(*storage), laid.layout());
}

bool holds_earlier(const Coordinates& at) { return !at.slot.empty() && static_cast<std::int64_t>(at.slot[0].size()) > at.tokens(); }

/// What a recurrent op went on from, by what was recorded at earlier steps.
Result<Tensor> state_before(const Model& model, const Trace& trace, const RunPlan& plan, int step, const Node& node) {
  const bool is_conv = node.op == Op::causal_conv;
  const auto& source = is_conv ? node.inputs.front() : node.output;
  RecurrentHistory history(plan.position_base, is_conv ? model.facts().delta->kernel - 1 : 1);
  for (int earlier = plan.reprefill ? step : 0; earlier < step; ++earlier) {
    const auto* record = trace.find(earlier, source);
    if (record == nullptr || record->file.empty()) continue;
    CULPRIT_TRY(const auto values, trace.tensor(*record));
    history.write(record->at, values);
  }
  const auto* now = trace.find(step, source);
  auto before = now == nullptr ? std::nullopt : history.before(now->at, now->layout);
  if (!before) return fail("tap-unknown", fmt::format("what {} went on from was not recorded", node.output));
  return *std::move(before);
}

/// What the rows of `at` had in their caches before `step`, right-aligned as the kit gathers them: each as its last step left it. One row's
/// cache was last written at another step than another's where rows join and leave.
Result<std::pair<Tensor, std::vector<std::vector<std::int64_t>>>> gathered_cache(const Trace& trace, int step, const Node& node,
                                                                                 const Coordinates& at) {
  struct Row {
    Tensor values;  // [1, kv_head, slot, channel]
    std::vector<std::int64_t> slots;
  };
  std::vector<Row> rows;
  const auto missing = [&] {
    return fail("tap-unknown", fmt::format("{} holds earlier tokens, but the step that wrote them was not recorded", node.output));
  };
  const auto slots = static_cast<std::int64_t>(at.slot[0].size()) - at.tokens();
  Shape shape;
  DType dtype = DType::f32;
  for (const int sequence : at.sequence) {
    auto& row = rows.emplace_back();
    for (int earlier = step - 1; earlier >= 0 && row.values.empty(); --earlier) {
      const auto* record = trace.find(earlier, node.output);
      if (record == nullptr) continue;
      const auto found = std::ranges::find(record->at.sequence, sequence);
      if (found == record->at.sequence.end()) continue;
      CULPRIT_TRY(const auto held, trace.tensor(*record));
      const auto index = found - record->at.sequence.begin();
      row.values = held.sliced(0, index, index + 1);
      row.slots = record->at.slot[static_cast<std::size_t>(index)];
      shape = held.shape();
      dtype = held.dtype();
    }
  }
  if (shape.size() != 4) return missing();
  shape[0] = static_cast<std::int64_t>(rows.size());
  shape[2] = slots;
  std::pair gathered{Tensor::zeros(dtype, shape), std::vector<std::vector<std::int64_t>>{}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto& held = gathered.second.emplace_back(static_cast<std::size_t>(slots), -1);
    const auto length = std::ssize(rows[i].slots);
    for (std::int64_t slot = std::max<std::int64_t>(0, slots - length); slot < slots; ++slot) {
      const auto from = slot - slots + length;
      held[static_cast<std::size_t>(slot)] = rows[i].slots[static_cast<std::size_t>(from)];
      for (std::int64_t head = 0; head < shape[1]; ++head)
        for (std::int64_t channel = 0; channel < shape[3]; ++channel)
          gathered.first.set({static_cast<std::int64_t>(i), head, slot, channel}, rows[i].values.at({0, head, from, channel}));
    }
    for (std::size_t slot = 0; slot < held.size(); ++slot)
      if (at.slot[i][slot] >= 0 && held[slot] != at.slot[i][slot]) return missing();
  }
  return gathered;
}

/// Slots that the first step of a single token found, up to `step`; -1 when there was none.
std::int64_t traced_slot(const Trace& trace, int step, const std::string& tap) {
  for (int earlier = 0; earlier <= step; ++earlier)
    if (const auto* record = trace.find(earlier, tap); record != nullptr && record->at.tokens() == 1)
      return std::ssize(record->at.slot[0]) - 1;
  return -1;
}

Result<Tensor> slots_behind(const Trace& trace, int step, const std::string& cache_tap) {
  SlotsBehind behind;
  Tensor latest;
  for (int earlier = 0; earlier <= step; ++earlier) {
    const auto* record = trace.find(earlier, cache_tap);
    if (record == nullptr || record->file.empty()) continue;
    CULPRIT_TRY(const auto read, trace.tensor(*record));
    latest = behind.read(read);
  }
  return latest;
}

}  // namespace

Result<RecordedCall> recorded_call(const Model& model, UsedWeights& weights, const Trace& trace, int step, const Node& node) {
  const auto* output = trace.find(step, node.output);
  if (output == nullptr) return fail("tap-unknown", fmt::format("{} was not recorded at step {}", node.output, step));
  CULPRIT_TRY(const auto plan_json, get_field<Json>(trace.header(), "plan", "trace header"));
  CULPRIT_TRY(auto plan, run_plan_from_json(plan_json));
  const double spare = plan.poison ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  RecordedCall recorded;
  OpCall& call = recorded.call;
  call.node = &node;
  call.dtype = output->layout.dtype;
  for (const auto& name : node.inputs) {
    const auto* record = trace.find(step, name);
    if (record == nullptr) return fail("tap-unknown", fmt::format("input {} was not recorded at step {}", name, step));
    CULPRIT_TRY(auto values, trace.tensor(*record));
    const auto* producer = model.graph().find(name);
    const bool is_cache = producer != nullptr && producer->op == Op::cache_write;
    auto laid = with_layout(values, record->layout, is_cache ? spare : std::numeric_limits<double>::quiet_NaN());
    if (is_cache) {
      CULPRIT_TRY(laid, with_taken_back(std::move(laid), trace, plan, step, *record));
    }
    call.inputs.push_back(std::move(laid));
  }
  call.context.facts = &model.facts();
  call.context.dtype = call.inputs.empty() ? call.dtype : call.inputs.front().dtype();  // of the run: outputs may be wider
  call.context.at = output->at;
  CULPRIT_TRY(call.context.cache_spec, CacheSpec::parse(plan.cache));
  if (node.op == Op::embedding) {
    CULPRIT_TRY(call.context.tokens, tokens_at(plan, step, output->at));
  }
  if (!node.weight.empty()) {
    std::optional<QuantizedValues> packed;
    if (plan.variants[std::string(name_of(node.op))] == "quantized") {
      CULPRIT_TRY(packed, weights.quantized(node.weight));
      CULPRIT_TRY(auto parts, weights.packed(node.weight));
      if (parts) call.packed = std::make_shared<const Weight>(*std::move(parts));
    }
    if (packed) {
      call.context.weight = packed->value;
      recorded.magnitude = packed->magnitude;
    } else {
      CULPRIT_TRY(call.context.weight, weights.dense(node.weight));
    }
  }
  if (!node.bias.empty()) {
    CULPRIT_TRY(call.context.bias, weights.dense(node.bias));
  }
  const auto* before = trace.find(step - 1, node.output);
  if (before != nullptr) {
    CULPRIT_TRY(call.previous, trace.tensor(*before));
  }
  set_schedule(plan, step, call);
  if (node.op == Op::cache_write) call.traced_slot = traced_slot(trace, step, node.output);
  if (node.op == Op::sdpa && leaves_slots_behind(plan, call.context.cache_spec)) {
    for (std::size_t i = 1; i < node.inputs.size(); ++i) {
      CULPRIT_TRY(call.behind.emplace_back(), slots_behind(trace, step, node.inputs[i]));
    }
  }
  if (node.op == Op::cache_write && holds_earlier(output->at) && !plan.reprefill) {
    if (plan.active.empty() && before != nullptr) {
      call.context.cache = call.previous;
      call.context.cache_slot = before->at.slot;
    } else {
      CULPRIT_TRY(std::tie(call.context.cache, call.context.cache_slot), gathered_cache(trace, step, node, output->at));
    }
  }
  if (node.op == Op::causal_conv || node.op == Op::delta_state) {
    CULPRIT_TRY(call.context.cache, state_before(model, trace, plan, step, node));
  }
  call.collapsed_rank = plan.variants["rope.rank"] == "3" ? 3 : 4;
  call.per_row_offset = (plan.variants["rope.offset"] == "per_row" || has_row_offsets(plan)) && output->at.rows() > 1;
  std::vector<Array> inputs;
  for (const auto& input : call.inputs) inputs.push_back(to_array(input));
  CULPRIT_TRY(const auto value, evaluate_node(node, inputs, call.context));
  call.result = to_tensor(value, call.dtype);
  return recorded;
}

}  // namespace culprit
