#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/file.h"
#include "base/text.h"
#include "fault/entries.h"

namespace culprit {

std::span<const FaultEntry> fault_catalogue() {
  static const std::array kEntries = {
      entries::f01_rope_single_token_grid(),
      entries::f02_view_read_as_dense(),
      entries::f03_scales_shifted_by_row(),
      entries::f04_batch_zero_for_all(),
      entries::f05_query_position_advanced(),
      entries::f06_write_slot_late(),
      entries::f07_shared_positions(),
      entries::f08_decode_position_reset(),
      entries::f09_rotary_table(),
      entries::f11_window(),
      entries::f12_causal_mask(),
      entries::f13_ring_cache(),
      entries::f14_block_tail(),
      entries::f15_split_merge(),
      entries::f16_path_lacks_a_part(),
      entries::f17_scale_misread(),
      entries::f18_index_wraps(),
      entries::f19_block_table_of_another_step(),
      entries::f20_reused_block(),
      entries::f21_write_slot_frozen(),
      entries::f22_kv_heads_tiled(),
      entries::f23_draft_stays(),
      entries::f24_matvec_of_packed_weight(),
  };
  return kEntries;
}

const FaultEntry* find_fault(std::string_view id) {
  for (const auto& entry : fault_catalogue())
    if (entry.id == id) return &entry;
  return nullptr;
}

bool FaultEntry::can_break(Op op) const { return std::find(ops.begin(), ops.end(), op) != ops.end(); }

bool FaultEntry::can_break(const FaultSpec& spec, const Node& node) const {
  return can_break(node.op) && glob_match(spec.parameter("tap", "**"), node.output) && (concerns == nullptr || concerns(spec, node));
}

Result<std::optional<Tensor>> apply_fault(const FaultSpec& spec, const OpCall& call) {
  const auto* entry = find_fault(spec.id);
  if (entry == nullptr) return fail("fault-unknown", fmt::format("there is no fault '{}'", spec.id));
  if (!entry->can_break(spec, *call.node)) return std::optional<Tensor>{};
  CULPRIT_TRY(auto broken, entry->breaks(spec, call));
  if (!broken) return std::optional<Tensor>{};
  return std::optional<Tensor>{std::move(broken->output)};
}

std::vector<FaultSpec> hypotheses(Op op) {
  std::vector<FaultSpec> specs;
  for (const auto& entry : fault_catalogue()) {
    if (!entry.can_break(op)) continue;
    std::vector<FaultSpec> product = {FaultSpec{std::string(entry.id), {}}};
    for (const auto& [name, values] : entry.parameters) {
      std::vector<FaultSpec> next;
      for (const auto& spec : product)
        for (const auto& value : values) {
          next.push_back(spec);
          next.back().parameters[name] = value;
        }
      product = std::move(next);
    }
    if (entry.is_distinct != nullptr) std::erase_if(product, [&](const FaultSpec& spec) { return !entry.is_distinct(spec); });
    specs.insert(specs.end(), product.begin(), product.end());
  }
  return specs;
}

Tensor SlotsBehind::read(const Tensor& cache) {
  if (held_.rank() != cache.rank() || held_.dim(2) <= cache.dim(2)) {
    held_ = cache.copy();
    return {};
  }
  const auto live = cache.dim(2);
  for_each_index(cache.shape(), [&](std::span<const std::int64_t> i) { held_.set(i, cache.at(i)); });
  return held_.sliced(2, live, held_.dim(2)).copy();
}

FaultSpec completed(FaultSpec spec) {
  if (const auto* entry = find_fault(spec.id))
    for (const auto& [name, values] : entry->parameters) spec.parameters.try_emplace(name, values.front());
  return spec;
}

bool content_is_open(const FaultSpec& spec) {
  const auto* entry = find_fault(spec.id);
  if (entry == nullptr || spec.parameters.contains("content")) return false;
  for (const auto& [name, values] : entry->parameters) {
    if (name != "content") continue;
    auto other = completed(spec);
    other.parameters["content"] = values.back();
    return entry->is_distinct == nullptr || entry->is_distinct(other);
  }
  return false;
}

namespace {

Result<void> check_parameter(const FaultEntry& entry, const std::string& name, const std::string& value) {
  if (name == "tap") return {};
  for (const auto& [known, values] : entry.parameters) {
    if (known != name) continue;
    if (std::find(values.begin(), values.end(), value) != values.end()) return {};
    return fail("fault-parameter",
                fmt::format("{}: '{}' is not a value of {}; expected one of {}", entry.id, value, name, fmt::join(values, ", ")));
  }
  std::vector<std::string> names;
  for (const auto& [known, values] : entry.parameters) names.push_back(known);
  names.emplace_back("tap");
  return fail("fault-parameter", fmt::format("{} has no parameter '{}'; it has {}", entry.id, name, fmt::join(names, ", ")));
}

}  // namespace

Result<FaultSpec> FaultSpec::parse(std::string_view text) {
  const auto colon = text.find(':');
  FaultSpec spec{std::string(text.substr(0, colon)), {}};
  const auto* entry = find_fault(spec.id);
  if (entry == nullptr) {
    std::vector<std::string_view> ids;
    for (const auto& known : fault_catalogue()) ids.push_back(known.id);
    const auto close = nearest(spec.id, ids);
    return fail("fault-unknown",
                fmt::format("there is no fault '{}'{}", spec.id, close.empty() ? "" : fmt::format("; did you mean {}?", close)));
  }
  auto rest = colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const auto part = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    const auto equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == part.size())
      return fail("fault-parameter", fmt::format("{}: expected NAME=VALUE, got '{}'", spec.id, part));
    const std::string name(part.substr(0, equals)), value(part.substr(equals + 1));
    CULPRIT_CHECK(check_parameter(*entry, name, value));
    spec.parameters[name] = value;
  }
  return spec;
}

std::string FaultSpec::text() const {
  std::string out = id;
  char separator = ':';
  for (const auto& [name, value] : parameters) {
    out += separator + name + '=' + value;
    separator = ',';
  }
  return out;
}

std::string FaultSpec::parameter(const std::string& name, std::string_view otherwise) const {
  if (const auto found = parameters.find(name); found != parameters.end()) return found->second;
  if (const auto* entry = find_fault(id))
    for (const auto& [known, values] : entry->parameters)
      if (known == name) return values.front();
  return std::string(otherwise);
}

namespace entries {

Result<Tensor> evaluate_rounded(const OpCall& call) {
  std::vector<Array> inputs;
  inputs.reserve(call.inputs.size());
  for (const auto& input : call.inputs) inputs.push_back(to_array(input));
  CULPRIT_TRY(auto value, evaluate_node(*call.node, inputs, call.context));
  return to_tensor(value, call.dtype);
}

std::optional<Broken> exactly(Tensor output, const OpCall& call) {
  const auto broken = output.contiguous();
  const auto right = call.result.contiguous();
  if (broken.shape() == right.shape() && broken.dtype() == right.dtype() &&
      std::ranges::equal(broken.contiguous_bytes(), right.contiguous_bytes()))
    return std::nullopt;
  return Broken{std::nullopt, broken};
}

Result<std::optional<Broken>> altered(OpCall call) {
  CULPRIT_TRY(auto output, evaluate_rounded(call));
  auto broken = exactly(std::move(output), call);
  if (broken) broken->altered = std::move(call);
  return broken;
}

OpCall with_more_slots(OpCall call, const Tensor& keys, const Tensor& values, const std::vector<std::int64_t>& seen) {
  const auto append = [](Tensor& cache, const Tensor& more) {
    auto shape = cache.shape();
    const auto slots = shape[2];
    shape[2] += more.dim(2);
    auto longer = Tensor::zeros(cache.dtype(), shape);
    for_each_index(shape, [&](std::span<const std::int64_t> i) {
      longer.set(i, i[2] < slots ? cache.at(i) : more.at({i[0], i[1], i[2] - slots, i[3]}));
    });
    cache = longer;
  };
  append(call.inputs.at(1), keys);
  append(call.inputs.at(2), values);
  auto& at = call.context.at;
  for (std::size_t row = 0; row < at.slot.size(); ++row)
    for (std::int64_t slot = 0; slot < keys.dim(2); ++slot) at.slot[row].push_back(slot < seen[row] ? at.position[row][0] : -1);
  return call;
}

OpCall with_window(OpCall call, int window) {
  auto node = std::make_shared<Node>(*call.node);
  node->window = window;
  call.owned_node = node;
  call.node = call.owned_node.get();
  return call;
}

std::int64_t cached_tokens(const OpCall& call) {
  if (call.context.at.slot.empty()) return 0;
  return static_cast<std::int64_t>(call.context.at.slot[0].size()) - call.context.at.tokens();
}

bool appends(const OpCall& call) {
  const auto& at = call.context.at;
  for (std::size_t row = 0; row < at.position.size(); ++row) {
    const auto &fed = at.position[row], &slots = at.slot[row];
    if (slots.size() < fed.size()) return false;
    for (std::size_t token = 0; token < fed.size(); ++token)
      if (const auto slot = slots[slots.size() - fed.size() + token]; slot >= 0 && slot != fed[token]) return false;
  }
  return true;
}

StaleBuffer::StaleBuffer(const OpCall& call) {
  if (!call.previous.empty()) values_ = call.previous.values();
}

}  // namespace entries
}  // namespace culprit
