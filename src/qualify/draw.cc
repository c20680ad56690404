#include "qualify/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/hash.h"
#include "decode/architecture.h"
#include "decode/facts_json.h"
#include "decode/hf_folder.h"
#include "decode/model.h"
#include "decode/model_folder.h"
#include "format/safetensors.h"
#include "qualify/dice.h"
#include "qualify/random_facts.h"

namespace culprit {
namespace {

constexpr std::string_view kNullPrefix = "null-";
constexpr int kPromptTokens = 6;  // as many as find's own
constexpr double kLargeWeight = 4;

std::set<Op> ops_of(const FaultEntry& entry) { return {entry.ops.begin(), entry.ops.end()}; }

bool has_any(const Graph& graph, const FaultEntry& entry) {
  return std::ranges::any_of(graph.nodes(), [&](const Node& node) { return entry.can_break(node.op); });
}

/// Empty: all taps. Else a layer, a role, or one of both, of a node that the fault can break.
std::string draw_tap(const Graph& graph, const FaultEntry& entry, Dice& dice) {
  if (dice.chance(60)) return {};
  std::vector<const Node*> breakable;
  for (const auto& node : graph.nodes())
    if (entry.can_break(node.op)) breakable.push_back(&node);
  const auto& node = *dice.pick(breakable);
  const int form = dice.between(0, 2);
  if (node.layer < 0) return node.output;
  if (form == 0) return fmt::format("layers.{}.*", node.layer);
  if (form == 1) return fmt::format("layers.*.{}", tap_role(node.output));
  return node.output;
}

FaultSpec draw_spec(const FaultEntry& entry, const Graph& graph, Dice& dice) {
  FaultSpec spec{std::string(entry.id), {}};
  for (const auto& [name, values] : entry.parameters) spec.parameters[name] = dice.pick(values);
  if (auto tap = draw_tap(graph, entry, dice); !tap.empty()) spec.parameters["tap"] = std::move(tap);
  return spec;
}

/// One that breaks none of the ops that `first` can, or nullptr.
const FaultEntry* draw_other(const FaultEntry& first, const Graph& graph, Dice& dice) {
  const auto taken = ops_of(first);
  std::vector<const FaultEntry*> others;
  for (const auto& entry : fault_catalogue())
    if (has_any(graph, entry) && std::ranges::none_of(entry.ops, [&](Op op) { return taken.contains(op); })) others.push_back(&entry);
  return others.empty() ? nullptr : dice.pick(others);
}

CacheSpec draw_cache(Dice& dice) {
  const auto text = dice.pick<std::string>(
      {"concat", "concat", "concat", "padded", "padded", "rotating:size=64", fmt::format("rotating:size={},keep=1", dice.between(3, 5)),
       fmt::format("sink_window:sink=1,window={}", dice.between(2, 4)), fmt::format("quantized:bits={},group=32", dice.pick({4, 8}))});
  return *CacheSpec::parse(text);
}

/// An architecture whose graph has an op that `entry` can break; any for a null.
const Architecture& draw_architecture(const FaultEntry* entry, Dice& dice) {
  std::vector<const Architecture*> fit;
  for (const auto* architecture : architectures())
    if (entry == nullptr || has_any(Graph(architecture->tiny()), *entry)) fit.push_back(architecture);
  return *(fit.empty() ? architectures()[0] : dice.pick(fit));
}

/// Whether a Hugging Face config says all of the facts.
bool fits_hf(const Facts& facts) {
  const auto config = find_architecture(facts.architecture)->write_hf(facts);
  const auto back = read_hf_facts(HfConfig(config, "config.json"));
  return back && to_json(*back) == to_json(facts);
}

/// One model in three has packed weights: rows of whole groups, and what such folders can say.
void draw_packing(QualifyCase& drawn, Dice& dice) {
  if (!dice.chance(33)) return;
  auto facts = drawn.facts;
  facts.hidden = kRandomModelGroup * dice.between(1, 2);
  facts.mlp_hidden = kRandomModelGroup * dice.between(1, 3);
  facts.rope.pairing = RopePairing::half;
  if (facts.rope_local) facts.rope_local->pairing = RopePairing::half;
  if (!check_facts(facts) || !fits_hf(facts)) return;
  drawn.facts = facts;
  drawn.bits = dice.pick({2, 4, 8});
}

void draw_null(QualifyCase& drawn, Dice& dice) {
  if (drawn.bits == 0) drawn.null_kind = static_cast<NullKind>(dice.between(0, 3));
  if (drawn.null_kind != NullKind::equal_tokens) return;
  for (int row = 0; row < 3; ++row)
    drawn.prompts.emplace_back(kPromptTokens, static_cast<int>(dice.below(static_cast<std::size_t>(drawn.facts.vocabulary))));
}

/// The number behind the prefix, from 1 on; 0 when it is none.
int number_in(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number > 0 ? number : 0;
}

std::uint64_t mixed(std::uint64_t campaign_seed, bool is_null, int number) {
  Dice first(campaign_seed * 2 + (is_null ? 1 : 0));
  return first.next() ^ (static_cast<std::uint64_t>(number) * 0x9e3779b97f4a7c15u);
}

using Tensors = std::vector<std::pair<std::string, Tensor>>;

/// Each odd token's row of the head becomes that of the token before it, but for the last bit of a bf16 here and there.
void make_twins(Tensors& tensors) {
  auto head = std::ranges::find(tensors, "w.logits", &Tensors::value_type::first);
  if (head == tensors.end()) head = std::ranges::find(tensors, "w.embed", &Tensors::value_type::first);
  auto& rows = head->second;
  for (std::int64_t token = 1; token < rows.dim(0); token += 2)
    for (std::int64_t c = 0; c < rows.dim(1); ++c) {
      const double value = round_to(DType::bf16, rows.at({token - 1, c}));
      rows.set({token - 1, c}, value);
      rows.set({token, c}, (token + c) % 16 == 0 ? value * (1 + 0x1p-7) : value);
    }
}

void enlarge(Tensors& tensors) {
  for (auto& [name, tensor] : tensors) {
    if (tensor.rank() < 2) continue;
    auto values = tensor.values();
    for (double& value : values) value *= kLargeWeight;
    tensor = Tensor::from_values(tensor.dtype(), tensor.shape(), values);
  }
}

}  // namespace

std::string_view name_of(NullKind kind) {
  static constexpr std::string_view kNames[] = {"plain", "near ties", "equal tokens", "large weights"};
  return kNames[static_cast<int>(kind)];
}

std::string fault_case_name(int number) { return std::to_string(number); }
std::string null_case_name(int number) { return fmt::format("{}{}", kNullPrefix, number); }

Result<QualifyCase> draw_case(std::uint64_t campaign_seed, const std::string& name, int attempt) {
  const bool is_null = name.starts_with(kNullPrefix);
  const int number = number_in(std::string_view(name).substr(is_null ? kNullPrefix.size() : 0));
  if (number == 0) return fail("option-value", fmt::format("a case is a number from 1 on, or null-1, null-2, ..; got '{}'", name));
  Dice dice(mixed(campaign_seed, is_null, number) ^ (static_cast<std::uint64_t>(attempt) * 0xbf58476d1ce4e5b9u));
  QualifyCase drawn;
  drawn.name = name;
  drawn.seed = dice.next() >> 32;  // short enough to be typed
  const auto* entry = is_null ? nullptr : &fault_catalogue()[dice.below(fault_catalogue().size())];
  drawn.dtype = dice.pick({DType::f32, DType::f16, DType::bf16});
  drawn.cache = draw_cache(dice);
  const auto& architecture = draw_architecture(entry, dice);
  drawn.facts = random_facts(architecture, dice, drawn.cache.quantizes());
  draw_packing(drawn, dice);
  if (is_null) {
    draw_null(drawn, dice);
    return drawn;
  }
  const Graph graph(drawn.facts);
  if (!has_any(graph, *entry))
    return fail("internal", fmt::format("case {}: no op of {} in a random {}", name, entry->id, architecture.name));
  drawn.faults.push_back(draw_spec(*entry, graph, dice));
  if (dice.chance(10))
    if (const auto* other = draw_other(*entry, graph, dice); other != nullptr) drawn.faults.push_back(draw_spec(*other, graph, dice));
  return drawn;
}

Result<void> write_case_model(const QualifyCase& drawn, const std::filesystem::path& folder) {
  if (drawn.bits > 0) return write_random_hf_model(folder, {drawn.facts, drawn.seed, drawn.bits});
  CULPRIT_CHECK(write_random_model(folder, {drawn.facts, drawn.seed}));
  if (drawn.null_kind != NullKind::near_ties && drawn.null_kind != NullKind::large_weights) return {};
  Tensors tensors;
  {
    CULPRIT_TRY(const auto file, Safetensors::open(folder / kModelTensorsFile));
    for (const auto& name : file.names()) {
      CULPRIT_TRY(const auto tensor, file.tensor(name));
      tensors.emplace_back(name, tensor.copy());
    }
  }
  if (drawn.null_kind == NullKind::near_ties)
    make_twins(tensors);
  else
    enlarge(tensors);
  return write_safetensors(folder / kModelTensorsFile, tensors);
}

std::string catalogue_hash() {
  std::string text;
  for (const auto& entry : fault_catalogue()) {
    text += entry.id;
    for (const auto op : entry.ops) text += fmt::format(" {}", name_of(op));
    for (const auto& [name, values] : entry.parameters) {
      text += fmt::format(" {}=", name);
      for (const auto& value : values) text += value + "|";
    }
    text += '\n';
  }
  for (const auto* architecture : architectures()) text += to_json(architecture->tiny()).dump() + "\n";
  return xxh3_128(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace culprit
