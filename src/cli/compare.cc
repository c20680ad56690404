#include <fmt/format.h>

#include <algorithm>

#include "cli/context.h"
#include "cli/json_text.h"
#include "cli/verbs.h"
#include "compare/trace_diff.h"
#include "trace/trace.h"

namespace culprit::cli {
namespace {

std::string place_text(const TokenKey& key) { return fmt::format("sequence {}, position {}", key.first, key.second); }

std::string to_text(const TraceDifference& difference, bool all) {
  std::size_t differing = 0, width = 3;
  for (const auto& tap : difference.taps) {
    differing += tap.differing_places > 0;
    if (all || tap.differing_places > 0) width = std::max(width, tap.tap.size());
  }
  std::string text = fmt::format("{} of {} taps differ\n", differing, difference.taps.size());
  if (differing > 0 || all)
    text +=
        fmt::format("{:<{}} {:>13} {:>21} {:>12} {:>12}  first and worst\n", "tap", width, "places", "elements", "error max", "ulp max");
  for (const auto& tap : difference.taps) {
    if (tap.differing_places == 0 && !all) continue;
    const auto& counts = tap.counts;
    text += fmt::format("{:<{}} {:>13} {:>21} {:>12.4g} {:>12}", tap.tap, width, fmt::format("{}/{}", tap.differing_places, tap.places),
                        fmt::format("{}/{}", counts.differing(), counts.count), counts.error_max,
                        counts.error_ulp_max == UINT64_MAX ? "nan" : fmt::to_string(counts.error_ulp_max));
    if (tap.first) text += fmt::format("  {}; {}", place_text(*tap.first), place_text(tap.worst));
    text += "\n";
  }
  for (const auto& line : difference.not_compared) text += fmt::format("not compared: {}\n", line);
  return text;
}

Json to_json(const TokenKey& key) { return {{"sequence", key.first}, {"position", key.second}}; }

Json to_json(const TraceDifference& difference) {
  Json taps = Json::array();
  for (const auto& tap : difference.taps) {
    const auto& counts = tap.counts;
    Json json = {{"tap", tap.tap},
                 {"places", tap.places},
                 {"places_differing", tap.differing_places},
                 {"elements", counts.count},
                 {"elements_differing", counts.differing()},
                 {"error_max", json_number(counts.error_max)},
                 {"error_ulp_max", counts.error_ulp_max},
                 {"nan_mismatches", counts.nan_mismatches},
                 {"inf_mismatches", counts.inf_mismatches}};
    if (tap.first) {
      json["first"] = to_json(*tap.first);
      json["worst"] = to_json(tap.worst);
    }
    taps.push_back(std::move(json));
  }
  return {{"equal", difference.equal()}, {"taps", std::move(taps)}, {"not_compared", difference.not_compared}};
}

std::int64_t base_of(const Trace& trace) {
  const auto& header = trace.header();
  return header.contains("plan") && header.at("plan").is_object() ? header.at("plan").value("position_base", std::int64_t{0}) : 0;
}

Result<int> run_compare(Context& context, const Arguments& arguments) {
  CULPRIT_TRY(const auto expected, Trace::open(arguments.positionals()[0]));
  CULPRIT_TRY(const auto actual, Trace::open(arguments.positionals()[1]));
  for (const auto* trace : {&expected, &actual})
    if (!trace->complete()) context.progress(fmt::format("{} broke off: {}", trace->folder().string(), trace->ended_by()));
  const auto shift = arguments.has("from-base") ? base_of(actual) - base_of(expected) : 0;
  CULPRIT_TRY(const auto difference, compare_traces(expected, actual, shift));
  if (context.json())
    context.out_json(document("culprit-comparison", to_json(difference)));
  else
    context.out(to_text(difference, arguments.has("all")));
  return difference.equal() ? 0 : 1;
}

}  // namespace

const Verb kCompare = {.name = "compare",
                       .summary = "compare two recorded runs, tap by tap, in logical (sequence, position) coordinates",
                       .details =
                           "It measures and does not judge: the exit code is 1 when any value differs, however little. Whether a "
                           "difference is legal says audit, and where it "
                           "comes from, find.",
                       .options = {{.name = "all", .placeholder = "", .help = "list the taps without a difference too"},
                                   {.name = "from-base",
                                    .placeholder = "",
                                    .help = "count positions from each run's own base: rotary positions are relative"}},
                       .positionals = {{.name = "EXPECTED"}, {.name = "ACTUAL"}},
                       .run = run_compare};

}  // namespace culprit::cli
