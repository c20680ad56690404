#include "cases/padded_probe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace culprit {
namespace {

std::string_view text_of(Reading reading) { return reading == Reading::linear ? "linear" : "strided"; }

/// The memory, [head, slot, channel], of `capacity` slots: prefix, token, zeros.
struct Memory {
  std::int64_t slots;
  std::vector<double> values;
};

/// In f32, as the published tests have it.
double element(const PaddedProbe& probe, std::int64_t head, std::int64_t slot, std::int64_t c) {
  const auto in_prefix = static_cast<double>((head * probe.prefix + slot) * probe.channels + c);
  const auto in_token = static_cast<double>(head * probe.channels + c);
  return static_cast<float>(slot < probe.prefix ? in_prefix * probe.prefix_step : probe.token_begin + in_token * probe.token_step);
}

Memory memory_of(const PaddedProbe& probe, Buffer buffer) {
  Memory memory{buffer == Buffer::padded ? probe.capacity : probe.prefix + 1, {}};
  memory.values.assign(static_cast<std::size_t>(probe.heads * memory.slots * probe.channels), 0.0);
  for (std::int64_t head = 0; head < probe.heads; ++head)
    for (std::int64_t slot = 0; slot <= probe.prefix; ++slot)
      for (std::int64_t c = 0; c < probe.channels; ++c)
        memory.values[static_cast<std::size_t>((head * memory.slots + slot) * probe.channels + c)] = element(probe, head, slot, c);
  return memory;
}

}  // namespace

ProbeOutcome read_view(const PaddedProbe& probe, Buffer buffer, Reading reading) {
  constexpr std::int64_t kLast = 16;  // elements that the published tests print
  const auto memory = memory_of(probe, buffer);
  const auto live = probe.prefix + 1, elements = probe.heads * live * probe.channels;
  ProbeOutcome outcome{buffer, reading, probe.heads, 0, {}, {}, 0, 0};
  // Element i of the view: by its strides, or as the i-th of the memory.
  const auto place = [&](std::int64_t i) {
    const auto head = i / (live * probe.channels);
    return reading == Reading::linear ? i : head * memory.slots * probe.channels + i % (live * probe.channels);
  };
  for (std::int64_t head = 0; head < probe.heads; ++head) {
    double difference = 0;
    bool zero = true;
    for (std::int64_t i = head * live * probe.channels; i < (head + 1) * live * probe.channels; ++i) {
      const double read = memory.values[static_cast<std::size_t>(place(i))];
      const auto slot = i / probe.channels % live;
      const double written = element(probe, head, slot, i % probe.channels);
      difference = std::max(difference, std::abs(read - written));
      zero = zero && read == 0;
    }
    outcome.head_difference_max.push_back(difference);
    outcome.head_is_zero.push_back(zero);
    outcome.difference_max = std::max(outcome.difference_max, difference);
  }
  const auto last = place(elements - kLast) / probe.channels;
  outcome.last_head = last / memory.slots;
  outcome.last_slot = last % memory.slots;
  return outcome;
}

namespace {

int enter(Ledger& ledger, const ProbeOutcome& outcome, std::string purpose) {
  Entry entry;
  entry.engine = "none";
  entry.purpose = std::move(purpose);
  entry.plan.name = fmt::format("{} read of a {} buffer, {} heads", text_of(outcome.reading),
                                outcome.buffer == Buffer::padded ? "padded" : "dense", outcome.heads);
  const bool padded = outcome.buffer == Buffer::padded;
  entry.other = {{"padding", padded ? "zeros" : "none"},
                 {"view", padded ? "of the live slots" : "none"},
                 {"read", std::string(text_of(outcome.reading))},
                 {"heads", std::to_string(outcome.heads)}};
  return ledger.add(std::move(entry));
}

std::string seen(const ProbeOutcome& outcome) {
  if (outcome.agrees()) return "equals what was written";
  std::vector<std::string> heads;
  for (std::size_t head = 0; head < outcome.head_difference_max.size(); ++head)
    heads.push_back(
        fmt::format("head {} by {:.3f}{}", head, outcome.head_difference_max[head], outcome.head_is_zero[head] ? " (all zero)" : ""));
  return fmt::format("differs from what was written by {:.3f}: {}", outcome.difference_max, fmt::join(heads, ", "));
}

}  // namespace

Result<ProbeVerdict> judge_probe(const PaddedProbe& probe) {
  ProbeVerdict verdict;
  auto one_head = probe;
  one_head.heads = 1;
  const auto suspect = read_view(probe, Buffer::padded, Reading::linear);
  const auto strided = read_view(probe, Buffer::padded, Reading::strided);
  const auto single = read_view(one_head, Buffer::padded, Reading::linear);
  const auto offered = read_view(probe, Buffer::dense, Reading::linear);
  const int suspect_run = enter(verdict.ledger, suspect, "the probe as published");
  const int strided_run = enter(verdict.ledger, strided, "control: the same buffer, read by its strides");
  const int single_run = enter(verdict.ledger, single, "control: the same probe, one head");
  const int offered_run = enter(verdict.ledger, offered, "the published control: no padding, no view");

  const auto add = [&](const ProbeOutcome& control, int run, const char* factor) -> Result<void> {
    CULPRIT_TRY(const auto only, verdict.ledger.contrast(run, suspect_run));
    verdict.evidence.push_back(
        {fmt::format("{}: {}; {}: {}", verdict.ledger.entries()[static_cast<std::size_t>(run - 1)].plan.name, seen(control),
                     verdict.ledger.entries()[static_cast<std::size_t>(suspect_run - 1)].plan.name, seen(suspect)),
         {run, suspect_run},
         Rule::control,
         control.agrees() && !suspect.agrees() && only == factor,
         {{run, suspect_run, only}}});
    return {};
  };
  CULPRIT_CHECK(add(strided, strided_run, "read"));
  CULPRIT_CHECK(add(single, single_run, "heads"));
  const auto refused = verdict.ledger.contrast(offered_run, suspect_run);
  if (refused)
    verdict.evidence.push_back({"the published control differs in one factor",
                                {offered_run, suspect_run},
                                Rule::control,
                                true,
                                {{offered_run, suspect_run, *refused}}});
  else
    verdict.refused.push_back(
        {fmt::format("the published control ({}) is none: {}: {}", seen(offered), refused.error().id, refused.error().message),
         {offered_run, suspect_run},
         Rule::control,
         false});
  const bool shown = std::ranges::all_of(verdict.evidence, &Claim::holds) && !verdict.evidence.empty();
  if (shown && strided.agrees() && !suspect.agrees()) verdict.culprit = "probe";
  return verdict;
}

}  // namespace culprit
