#include "engine/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <numeric>
#include <set>
#include <span>

#include "base/fields.h"
#include "base/file.h"
#include "base/text.h"
#include "decode/cache_spec.h"

namespace culprit {
namespace {

constexpr std::array<std::string_view, 2> kWeightSources = {"engine", "culprit"};
constexpr std::array<std::string_view, 4> kSyncs = {"lazy", "each_op", "each_layer", "async"};
constexpr std::array<std::string_view, 4> kInterventionKinds = {"exact", "variant", "replace", "keep"};

tl::unexpected<Error> invalid(std::string message) { return fail("plan-invalid", std::move(message)); }

/// Index of `name` in `names`; the names are in the order of their enum.
Result<std::size_t> index_of(std::string_view name, std::span<const std::string_view> names, std::string_view what) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  const auto close = nearest(name, names);
  return invalid(fmt::format("there is no {} '{}'; expected one of {}{}", what, name, fmt::join(names, ", "),
                             close.empty() ? "" : fmt::format("; did you mean {}?", close)));
}

Json to_json(const Intervention& intervention) {
  Json json = {{"kind", kInterventionKinds[static_cast<std::size_t>(intervention.kind)]}, {"tap", intervention.tap}};
  if (!intervention.steps.empty()) json["steps"] = intervention.steps;
  if (!intervention.variant.empty()) json["variant"] = intervention.variant;
  if (!intervention.file.empty()) json["file"] = intervention.file.string();
  return json;
}

Result<Intervention> intervention_from_json(const Json& json) {
  Intervention intervention;
  std::string kind;
  CULPRIT_CHECK(Fields(json, "intervention", "plan-invalid")
                    .required("kind", kind)
                    .required("tap", intervention.tap)
                    .optional("steps", intervention.steps)
                    .optional("variant", intervention.variant)
                    .optional("file", intervention.file)
                    .done());
  CULPRIT_TRY(const auto index, index_of(kind, kInterventionKinds, "kind of intervention"));
  intervention.kind = static_cast<Intervention::Kind>(index);
  return intervention;
}

Result<void> validate_rows(const RunPlan& plan) {
  if (plan.sequences.empty()) return fail("tokens-invalid", "there are no tokens");
  for (std::size_t row = 0; row < plan.sequences.size(); ++row)
    if (plan.sequences[row].empty()) return fail("tokens-invalid", fmt::format("row {} has no tokens", row));
  if (!plan.sequence_ids.empty() && plan.sequence_ids.size() != plan.sequences.size())
    return invalid(fmt::format("expected {} sequence ids, one a row, got {}", plan.sequences.size(), plan.sequence_ids.size()));
  if (plan.position_base < 0) return invalid(fmt::format("position base {} is negative", plan.position_base));
  return {};
}

/// The rows of each step are there, each once; each row comes at some step, and is told from the others by its sequence.
Result<void> validate_active(const RunPlan& plan) {
  if (plan.active.empty()) return {};
  if (plan.reprefill) return invalid("a re-prefill has no cache that a row could join or leave");
  if (plan.active.size() != plan.chunks.size())
    return invalid(fmt::format("active: expected the rows of {} steps, got those of {}", plan.chunks.size(), plan.active.size()));
  std::set<int> fed, sequences;
  for (std::size_t step = 0; step < plan.active.size(); ++step) {
    if (plan.active[step].empty()) return invalid(fmt::format("active: step {} feeds no row", step));
    std::set<int> seen;
    for (const int row : plan.active[step]) {
      if (row < 0 || static_cast<std::size_t>(row) >= plan.sequences.size())
        return invalid(fmt::format("active: step {} has row {}; there are {} rows", step, row, plan.sequences.size()));
      if (!seen.insert(row).second) return invalid(fmt::format("active: step {} has row {} twice", step, row));
      fed.insert(row);
    }
  }
  for (std::size_t row = 0; row < plan.sequences.size(); ++row) {
    if (!fed.contains(static_cast<int>(row))) return invalid(fmt::format("active: no step feeds row {}", row));
    if (!sequences.insert(sequence_of(plan, row)).second)
      return invalid(fmt::format("two rows are of sequence {}: rows that join or leave are told apart by theirs", sequence_of(plan, row)));
  }
  return {};
}

/// Each row is fed all of its tokens, and padded only up to a row that begins with it.
Result<void> validate_fed_rows(const RunPlan& plan) {
  const auto last = static_cast<int>(plan.chunks.size()) - 1;
  std::set<std::size_t> begun;
  for (int step = 0; step <= last; ++step) {
    int padding_min = std::numeric_limits<int>::max();
    for (const auto row : rows_at(plan, step)) {
      if (!begun.insert(row).second) continue;
      const int fed = fed_through(plan, last, row), padding = padding_of(plan, row);
      if (padding < 0) return invalid(fmt::format("the steps of row {} feed {} tokens, it has {}", row, fed, plan.sequences[row].size()));
      padding_min = std::min(padding_min, padding);
    }
    if (padding_min > 0 && padding_min < std::numeric_limits<int>::max())
      return invalid(fmt::format("all rows that begin at step {} are padded, by {} tokens at least", step, padding_min));
  }
  return {};
}

Result<void> validate_chunks(const RunPlan& plan) {
  std::int64_t total = 0;
  for (std::size_t step = 0; step < plan.chunks.size(); ++step) {
    if (plan.chunks[step] <= 0) return invalid(fmt::format("chunk {} feeds {} tokens; at least 1 is expected", step, plan.chunks[step]));
    total += plan.chunks[step];
  }
  if (!plan.active.empty() && total > std::numeric_limits<int>::max()) return invalid(fmt::format("the chunks feed {} tokens", total));
  CULPRIT_CHECK(validate_active(plan));
  if (!plan.active.empty()) return validate_fed_rows(plan);
  const std::int64_t length = length_of(plan), reused = plan.reuse ? plan.reuse->common : 0;
  if (total != length - reused)
    return invalid(fmt::format("the chunks feed {} tokens, the {} {}{}", total, has_padding(plan) ? "longest row has" : "rows have", length,
                               plan.reuse ? fmt::format(", of which {} are reused", reused) : ""));
  return {};
}

/// As many tokens in each row, and at least one.
Result<void> validate_foreign(std::size_t rows, const char* of_rows, const std::vector<std::vector<int>>& tokens, const std::string& what) {
  if (tokens.size() != rows) return invalid(fmt::format("{} has {} rows, the {} {}", what, tokens.size(), of_rows, rows));
  for (const auto& row : tokens)
    if (row.empty() || row.size() != tokens[0].size())
      return invalid(
          fmt::format("{} has rows of {} and {} tokens; as many in each are expected, and at least 1", what, tokens[0].size(), row.size()));
  return {};
}

Result<void> validate_reuse(const RunPlan& plan) {
  if (!plan.reuse) return {};
  const auto& [common, tokens, chunks] = *plan.reuse;
  if (plan.reprefill) return invalid("a re-prefill begins with a fresh cache at each step, so it reuses none");
  if (!plan.active.empty()) return invalid("rows that join or leave reuse no prefix: give them one before");
  if (has_padding(plan)) return invalid("rows of unequal length are padded on the left, so they reuse no prefix of one length");
  if (common < 1 || common >= length_of(plan))
    return invalid(fmt::format("reuse: expected 1 to {} common tokens, got {}", length_of(plan) - 1, common));
  CULPRIT_CHECK(validate_foreign(plan.sequences.size(), "plan", tokens, "reuse: the other sequence"));
  std::int64_t total = 0;
  for (const int chunk : chunks) {
    if (chunk <= 0) return invalid(fmt::format("reuse: a chunk feeds {} tokens; at least 1 is expected", chunk));
    total += chunk;
  }
  if (const auto expected = common + std::ssize(tokens[0]); total != expected)
    return invalid(fmt::format("reuse: the chunks feed {} tokens, the other sequence has {}", total, expected));
  return {};
}

/// What is restored after a step must be read by a later one.
Result<void> validate_restores(const RunPlan& plan) {
  if (plan.restore_after.empty()) return {};
  if (plan.reprefill) return invalid("restore_after: a re-prefill begins with a fresh cache at each step, so it restores none");
  int before = -1;
  for (const int step : plan.restore_after) {
    if (step <= before || step >= steps_of(plan) - 1)
      return invalid(
          fmt::format("restore_after: step {} is out of order, or not one of the plan's {} that another follows", step, steps_of(plan)));
    before = step;
  }
  return {};
}

Result<void> validate_drafts(const RunPlan& plan) {
  int before = priming_steps(plan) - 1;
  for (const auto& draft : plan.drafts) {
    if (draft.step <= before || draft.step >= steps_of(plan))
      return invalid(fmt::format("drafts: step {} is out of order, or not among the plan's {}{}", draft.step, steps_of(plan),
                                 plan.reuse ? " that are not another sequence's" : ""));
    before = draft.step;
    const auto rows = rows_at(plan, draft.step).size();
    CULPRIT_CHECK(
        validate_foreign(rows, plan.active.empty() ? "plan" : "step", draft.tokens, fmt::format("the draft of step {}", draft.step)));
  }
  return {};
}

/// What the cache drops is known beforehand, and so is what it cannot take back.
Result<void> validate_cache(const RunPlan& plan) {
  CULPRIT_TRY(const auto spec, CacheSpec::parse(plan.cache));
  if (!plan.active.empty() && spec.kind != CacheKind::concat && spec.kind != CacheKind::padded)
    return fail("not-supported",
                fmt::format("rows that join or leave with the cache {}; only concat and padded can be re-made", plan.cache));
  if (has_padding(plan) && spec.kind == CacheKind::rotating)
    return fail("not-supported", "rows of unequal length in a rotating cache: it would keep their padding");
  if (has_row_offsets(plan)) {
    const auto setting = [&](const char* key) { return plan.variants.contains(key) ? plan.variants.at(key) : std::string(); };
    if (setting("rope.rank") == "3" || setting("rope.offset") == "scalar")
      return invalid(fmt::format("rows {} need an offset for each row: neither rope.rank=3 nor rope.offset=scalar can do that",
                                 plan.active.empty() ? "of unequal length" : "that join or leave"));
  }
  CacheContent content(spec);
  for (int step = 0; step < steps_of(plan); ++step) {
    feed_step(plan, step, content);
    CULPRIT_CHECK(content.take_back(taken_back_after(plan, step)));
    if (step != priming_steps(plan) - 1) continue;
    CacheContent fresh(spec);
    fresh.feed(plan.reuse->common);
    if (content.held() != fresh.held())
      return fail("not-supported", fmt::format("the other sequence displaces tokens of the common prefix from the cache {}", spec.text()));
  }
  return {};
}

Result<void> validate_steps(const RunPlan& plan, const std::vector<int>& steps, std::string_view what) {
  for (const int step : steps)
    if (step < 0 || step >= steps_of(plan))
      return invalid(fmt::format("{}: there is no step {}; the plan has {}", what, step, steps_of(plan)));
  return {};
}

Result<void> validate(const RunPlan& plan, const Intervention& intervention) {
  using Kind = Intervention::Kind;
  const auto index = static_cast<std::size_t>(intervention.kind);
  if (index >= kInterventionKinds.size()) return invalid("an intervention is of an unknown kind");
  const auto what = fmt::format("intervention {} on '{}'", kInterventionKinds[index], intervention.tap);
  if (intervention.tap.empty()) return invalid(what + " names no tap");
  if (intervention.kind == Kind::variant && intervention.variant.empty()) return invalid(what + " names no variant");
  if (intervention.kind == Kind::replace && intervention.file.empty()) return invalid(what + " names no file");
  if (intervention.kind != Kind::variant && !intervention.variant.empty()) return invalid(what + " cannot take a variant");
  if (intervention.kind != Kind::replace && !intervention.file.empty()) return invalid(what + " cannot take a file");
  return validate_steps(plan, intervention.steps, what);
}

/// Names of ops and their variants are the driver's to know; what the protocol itself defines is checked here.
Result<void> validate_variants(const RunPlan& plan) {
  for (const auto& [name, value] : plan.variants) {
    if (name.empty() || value.empty()) return invalid(fmt::format("variant '{}' = '{}': neither may be empty", name, value));
    if (name == "rope.rank" && value != "3" && value != "4") return invalid(fmt::format("rope.rank is {}; expected 3 or 4", value));
    if (name == "rope.offset" && value != "scalar" && value != "per_row")
      return invalid(fmt::format("rope.offset is {}; expected scalar or per_row", value));
  }
  return {};
}

/// "GLOB" or "GLOB@STEP".
struct SyncPlace {
  std::string glob;
  std::optional<int> step;
};
SyncPlace sync_place(const std::string& text) {
  const auto at = text.rfind('@');
  int step = 0;
  if (at == std::string::npos) return {text, std::nullopt};
  const auto [end, error] = std::from_chars(text.data() + at + 1, text.data() + text.size(), step);
  if (error != std::errc() || end != text.data() + text.size() || at + 1 == text.size()) return {text, std::nullopt};
  return {text.substr(0, at), step};
}

Result<void> validate_sync(const RunPlan& plan) {
  if (static_cast<std::size_t>(plan.sync) >= kSyncs.size()) return invalid("the sync is of an unknown kind");
  if (plan.sync == Sync::lazy && !plan.sync_taps.empty()) return invalid("sync_taps are given, but lazy evaluation acts after none");
  for (const auto& text : plan.sync_taps) {
    const auto place = sync_place(text);
    if (place.glob.empty()) return invalid("a glob of sync_taps is empty");
    if (place.step) CULPRIT_CHECK(validate_steps(plan, {*place.step}, "sync_taps"));
  }
  return {};
}

}  // namespace

std::string_view name_of(WeightSource source) { return kWeightSources[static_cast<std::size_t>(source)]; }
std::string_view name_of(Sync sync) { return kSyncs[static_cast<std::size_t>(sync)]; }

int length_of(const RunPlan& plan) {
  std::size_t length = 0;
  for (const auto& row : plan.sequences) length = std::max(length, row.size());
  return static_cast<int>(length);
}

std::vector<std::size_t> rows_at(const RunPlan& plan, int step) {
  if (!plan.active.empty()) {
    const auto& rows = plan.active[static_cast<std::size_t>(step)];
    return {rows.begin(), rows.end()};
  }
  std::vector<std::size_t> all(plan.sequences.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

bool rows_changed_at(const RunPlan& plan, int step) {
  return step > 0 && !plan.active.empty() && plan.active[static_cast<std::size_t>(step)] != plan.active[static_cast<std::size_t>(step) - 1];
}

int sequence_of(const RunPlan& plan, std::size_t row) { return plan.sequence_ids.empty() ? static_cast<int>(row) : plan.sequence_ids[row]; }

int padding_of(const RunPlan& plan, std::size_t row) {
  const int fed = plan.active.empty() ? length_of(plan) : fed_through(plan, static_cast<int>(plan.chunks.size()) - 1, row);
  return fed - static_cast<int>(plan.sequences[row].size());
}

bool has_padding(const RunPlan& plan) {
  for (std::size_t row = 0; row < plan.sequences.size(); ++row)
    if (padding_of(plan, row) != 0) return true;
  return false;
}

int priming_steps(const RunPlan& plan) { return plan.reuse ? static_cast<int>(plan.reuse->chunks.size()) : 0; }

int steps_of(const RunPlan& plan) { return priming_steps(plan) + static_cast<int>(plan.chunks.size()); }

bool has_row_offsets(const RunPlan& plan) { return !plan.active.empty() || has_padding(plan); }

namespace {

/// Tokens of the other sequence that are fed by the end of `step`; all of them after its last step.
int primed_through(const RunPlan& plan, int step) {
  int fed = 0;
  for (int s = 0; s <= step && s < priming_steps(plan); ++s) fed += plan.reuse->chunks[static_cast<std::size_t>(s)];
  return fed;
}

const Draft* draft_at(const RunPlan& plan, int step) {
  const auto found = std::ranges::find(plan.drafts, step, &Draft::step);
  return found == plan.drafts.end() || found->tokens.empty() ? nullptr : &*found;
}

}  // namespace

int fed_through(const RunPlan& plan, int step) {
  int fed = plan.reuse ? std::min(plan.reuse->common, primed_through(plan, step)) : 0;
  for (int s = priming_steps(plan); s <= step && s < steps_of(plan); ++s)
    fed += plan.chunks[static_cast<std::size_t>(s - priming_steps(plan))];
  return fed;
}

int fed_through(const RunPlan& plan, int step, std::size_t row) {
  if (plan.active.empty()) return fed_through(plan, step);
  int fed = 0;
  for (std::size_t s = 0; static_cast<int>(s) <= step && s < plan.chunks.size(); ++s)
    if (std::ranges::find(plan.active[s], static_cast<int>(row)) != plan.active[s].end()) fed += plan.chunks[s];
  return fed;
}

bool syncs_after(const RunPlan& plan, const std::string& tap, int step) {
  return plan.sync_taps.empty() || std::ranges::any_of(plan.sync_taps, [&](const std::string& text) {
           const auto place = sync_place(text);
           return (!place.step || *place.step == step) && glob_match(place.glob, tap);
         });
}

int kept_at(const RunPlan& plan, int step) { return fed_through(plan, step) - (plan.reprefill ? 0 : fed_through(plan, step - 1)); }

std::vector<int> foreign_tokens(const RunPlan& plan, int step, std::size_t row) {
  if (step < priming_steps(plan)) {
    const auto& tokens = plan.reuse->tokens[row];
    const auto begin = tokens.begin() + std::max(0, primed_through(plan, step - 1) - plan.reuse->common);
    return {begin, begin + foreign_at(plan, step)};
  }
  const auto* draft = draft_at(plan, step);
  return draft == nullptr ? std::vector<int>() : draft->tokens[row];
}

int foreign_at(const RunPlan& plan, int step) {
  if (step < priming_steps(plan)) return foreign_held(plan, step) - std::max(0, primed_through(plan, step - 1) - plan.reuse->common);
  return foreign_held(plan, step);
}

int foreign_held(const RunPlan& plan, int step) {
  if (step < priming_steps(plan)) return std::max(0, primed_through(plan, step) - plan.reuse->common);
  const auto* draft = draft_at(plan, step);
  return draft == nullptr ? 0 : static_cast<int>(draft->tokens[0].size());
}

int taken_back_after(const RunPlan& plan, int step) { return step < priming_steps(plan) - 1 ? 0 : foreign_held(plan, step); }

bool restored_before(const RunPlan& plan, int step) {
  return std::ranges::any_of(plan.restore_after, [&](int after) { return after < step; });
}

bool leaves_slots_behind(const RunPlan& plan, const CacheSpec& cache) {
  const bool takes_back = !plan.drafts.empty() || plan.reuse;
  return takes_back && !plan.poison && plan.restore_after.empty() && plan.active.empty() && !plan.reprefill && cache.keeps_all();
}

void set_schedule(const RunPlan& plan, int step, OpCall& call) {
  call.rows_changed = rows_changed_at(plan, step);
  call.taken_back = step > 0 ? taken_back_after(plan, step - 1) : 0;
  call.prefix_reused = plan.reuse.has_value() && step == priming_steps(plan);
  call.restored = std::ranges::find(plan.restore_after, step - 1) != plan.restore_after.end();
  call.poisoned = plan.poison;
}

void feed_step(const RunPlan& plan, int step, CacheContent& content) {
  if (plan.reprefill) content.clear();
  content.feed(kept_at(plan, step) + foreign_at(plan, step));
}

Json to_json(const LoadPlan& plan) {
  return {{"model", plan.model.string()},
          {"dtype", name_of(plan.dtype)},
          {"weights", name_of(plan.weights)},
          {"weight_fault", {{"q4_1_nibble_offset", plan.weight_fault.q4_1_nibble_offset}}}};
}

Result<LoadPlan> load_plan_from_json(const Json& json) {
  LoadPlan plan;
  std::string dtype(name_of(plan.dtype)), weights(name_of(plan.weights));
  Fields fields(json, "load plan", "plan-invalid");
  fields.required("model", plan.model).optional("dtype", dtype).optional("weights", weights);
  if (const auto* fault = fields.find("weight_fault"))
    CULPRIT_CHECK(
        Fields(*fault, "weight fault", "plan-invalid").optional("q4_1_nibble_offset", plan.weight_fault.q4_1_nibble_offset).done());
  CULPRIT_CHECK(fields.done());
  CULPRIT_TRY(plan.dtype, parse_dtype(dtype));
  CULPRIT_TRY(const auto index, index_of(weights, kWeightSources, "weight source"));
  plan.weights = static_cast<WeightSource>(index);
  return plan;
}

Json to_json(const RunPlan& plan) {
  Json interventions = Json::array(), faults = Json::array(), variants = Json::object(), drafts = Json::array();
  for (const auto& draft : plan.drafts) drafts.push_back({{"step", draft.step}, {"tokens", draft.tokens}});
  for (const auto& intervention : plan.interventions) interventions.push_back(to_json(intervention));
  for (const auto& fault : plan.faults) faults.push_back(fault.text());
  for (const auto& [name, value] : plan.variants) variants[name] = value;
  Json json = {{"name", plan.name},
               {"sequences", plan.sequences},
               {"sequence_ids", plan.sequence_ids},
               {"position_base", plan.position_base},
               {"chunks", plan.chunks},
               {"reprefill", plan.reprefill},
               {"active", plan.active},
               {"drafts", std::move(drafts)},
               {"restore_after", plan.restore_after},
               {"cache", plan.cache},
               {"poison", plan.poison},
               {"variants", std::move(variants)},
               {"capture", plan.capture},
               {"capture_steps", plan.capture_steps},
               {"hash_only", plan.hash_only},
               {"interventions", std::move(interventions)},
               {"faults", std::move(faults)},
               {"sync", name_of(plan.sync)},
               {"sync_taps", plan.sync_taps}};
  if (plan.reuse) json["reuse"] = {{"common", plan.reuse->common}, {"tokens", plan.reuse->tokens}, {"chunks", plan.reuse->chunks}};
  return json;
}

Result<RunPlan> run_plan_from_json(const Json& json) {
  RunPlan plan;
  std::string sync(name_of(plan.sync));
  std::vector<std::string> faults;
  Fields fields(json, "run plan", "plan-invalid");
  fields.optional("name", plan.name)
      .required("sequences", plan.sequences)
      .optional("sequence_ids", plan.sequence_ids)
      .optional("position_base", plan.position_base)
      .required("chunks", plan.chunks)
      .optional("reprefill", plan.reprefill)
      .optional("restore_after", plan.restore_after)
      .optional("active", plan.active)
      .optional("cache", plan.cache)
      .optional("poison", plan.poison)
      .optional("variants", plan.variants)
      .optional("capture", plan.capture)
      .optional("capture_steps", plan.capture_steps)
      .optional("hash_only", plan.hash_only)
      .optional("faults", faults)
      .optional("sync", sync)
      .optional("sync_taps", plan.sync_taps);
  const auto* interventions = fields.find("interventions");
  const auto* drafts = fields.find("drafts");
  const auto* reuse = fields.find("reuse");
  CULPRIT_CHECK(fields.done());
  if (reuse != nullptr && !reuse->is_null()) {
    auto& read = plan.reuse.emplace();
    CULPRIT_CHECK(Fields(*reuse, "reuse", "plan-invalid")
                      .required("common", read.common)
                      .required("tokens", read.tokens)
                      .required("chunks", read.chunks)
                      .done());
  }
  if (drafts != nullptr) {
    if (!drafts->is_array()) return invalid("run plan: field 'drafts' is not a list");
    for (const auto& item : *drafts)
      CULPRIT_CHECK(Fields(item, "draft", "plan-invalid")
                        .required("step", plan.drafts.emplace_back().step)
                        .required("tokens", plan.drafts.back().tokens)
                        .done());
  }
  if (interventions != nullptr) {
    if (!interventions->is_array()) return invalid("run plan: field 'interventions' is not a list");
    for (const auto& item : *interventions) {
      CULPRIT_TRY(auto intervention, intervention_from_json(item));
      plan.interventions.push_back(std::move(intervention));
    }
  }
  for (const auto& text : faults) {
    CULPRIT_TRY(auto fault, FaultSpec::parse(text));
    plan.faults.push_back(std::move(fault));
  }
  CULPRIT_TRY(const auto index, index_of(sync, kSyncs, "sync"));
  plan.sync = static_cast<Sync>(index);
  return plan;
}

Result<void> validate(const RunPlan& plan) {
  CULPRIT_CHECK(validate_rows(plan));
  CULPRIT_CHECK(validate_reuse(plan));
  CULPRIT_CHECK(validate_chunks(plan));
  CULPRIT_CHECK(validate_drafts(plan));
  CULPRIT_CHECK(validate_restores(plan));
  CULPRIT_CHECK(validate_cache(plan));
  CULPRIT_CHECK(validate_sync(plan));
  CULPRIT_CHECK(validate_variants(plan));
  for (const auto& glob : plan.capture)
    if (glob.empty()) return invalid("a capture glob is empty");
  CULPRIT_CHECK(validate_steps(plan, plan.capture_steps, "capture_steps"));
  for (const auto& intervention : plan.interventions) CULPRIT_CHECK(validate(plan, intervention));
  return {};
}

Result<void> validate_tokens(const RunPlan& plan, int vocabulary) {
  for (std::size_t row = 0; row < plan.sequences.size(); ++row)
    for (std::size_t i = 0; i < plan.sequences[row].size(); ++i)
      if (const int token = plan.sequences[row][i]; token < 0 || token >= vocabulary)
        return fail("tokens-invalid", fmt::format("row {}, token {}: id {} is not in the vocabulary [0, {})", row, i, token, vocabulary));
  const auto check = [&](const std::vector<std::vector<int>>& tokens, const std::string& what) -> Result<void> {
    for (const auto& row : tokens)
      for (const int token : row)
        if (token < 0 || token >= vocabulary)
          return fail("tokens-invalid", fmt::format("{}: id {} is not in the vocabulary [0, {})", what, token, vocabulary));
    return {};
  };
  for (const auto& draft : plan.drafts) CULPRIT_CHECK(check(draft.tokens, fmt::format("draft of step {}", draft.step)));
  return plan.reuse ? check(plan.reuse->tokens, "reuse") : Result<void>();
}

}  // namespace culprit
