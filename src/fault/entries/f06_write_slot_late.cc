#include "fault/entries.h"

namespace culprit::entries {
namespace {

/// Rows that join are gathered at one length, but the shorter ones stay where they were, at the left: the new tokens of all are appended at
/// the longest one's end, and a hole lies before them. Rows are right-aligned, so it lies where their tokens belong.
std::optional<Broken> appended_at_the_longest(const OpCall& call) {
  if (!call.rows_changed) return std::nullopt;
  const auto before = cached_tokens(call);
  auto output = call.result.copy();
  for_each_index({output.dim(0), output.dim(1), before, output.dim(3)}, [&](std::span<const std::int64_t> i) {
    const auto& slots = call.context.at.slot[static_cast<std::size_t>(i[0])];
    const auto short_by = std::min(before, std::find_if(slots.begin(), slots.end(), [](auto slot) { return slot >= 0; }) - slots.begin());
    output.set(i, i[2] + short_by < before ? call.result.at({i[0], i[1], i[2] + short_by, i[3]}) : 0.0);
  });
  return exactly(std::move(output), call);
}

// The new tokens are written one slot late: the first new slot stays unwritten and the newest token falls behind the live view.
Result<std::optional<Broken>> breaks(const FaultSpec& spec, const OpCall& call) {
  const auto before = cached_tokens(call);
  if (before == 0 || !appends(call)) return std::nullopt;
  if (spec.parameter("append", "late") == "longest") return appended_at_the_longest(call);
  auto output = call.result.copy();
  const auto& new_tokens = call.inputs.at(0);
  const auto tokens = new_tokens.dim(2);
  const bool last = spec.parameter("content", "zero") == "last";
  for_each_index({output.dim(0), output.dim(1), tokens, output.dim(3)}, [&](std::span<const std::int64_t> i) {
    double value = 0;
    if (i[2] > 0) value = new_tokens.at({i[0], i[1], i[2] - 1, i[3]});
    if (i[2] == 0 && last) value = call.result.at({i[0], i[1], before - 1, i[3]});
    output.set({i[0], i[1], before + i[2], i[3]}, value);
  });
  return exactly(std::move(output), call);
}

bool is_distinct(const FaultSpec& spec) {
  return spec.parameter("append", "late") == "late" || spec.parameter("content", "zero") == "zero";
}

}  // namespace

FaultEntry f06_write_slot_late() {
  return {.id = "F06",
          .ops = {Op::cache_write},
          .title = "the cache is written one slot late, or at the longest row's end",
          .mechanism =
              "new keys or values land at slot + 1: a hole stays at their slot and the newest one falls out of the live view (late); or a "
              "row that joins longer ones is appended to at their end: a hole lies behind what it had (longest)",
          .trigger = "a step that appends to a cache which is not empty; longest: before which rows of unequal lengths joined",
          .public_example = "onnxruntime-genai 2354",
          .parameters = {{"content", {"zero", "last"}}, {"append", {"late", "longest"}}},
          .breaks = breaks,
          .is_distinct = is_distinct,
          .meanings = {{"content=zero", "the hole holds zeros"},
                       {"content=last", "the hole holds the token before"},
                       {"append=late", "each row is written at slot + 1"},
                       {"append=longest", "a row that joins longer ones is written at their end"}},
          .look_alikes = {
              {"F17", "the slot behind the one that is wrong: a hole and a token that fell out are F06's; F17 moves nothing"},
              {"F02", "a read of the cache by its strides: wrong under F06, whose writer is, and right under F02, whose reader is wrong"},
              {"F05", "the cache's content: right under F05, a hole under F06"},
              {"F08", "the cache's content: every slot holds what was written under F08, a hole is there under F06"},
              {"F18", "a run below the limit: right under F18, wrong under F06"},
              {"F21", "the first step of one token: right under F21, wrong under F06"},
              {"F23", "a decode without drafts: F06 stays, F23 goes"}}};
}

}  // namespace culprit::entries
