// The JSON that the driver protocol carries: plans and facts. One that is accepted is written and read again without change.
#include "base/json.h"
#include "decode/facts_json.h"
#include "engine/plan.h"
#include "tests/fuzz/fuzz.h"

using namespace culprit;

namespace {
template <class Value>
void round_trip(const Json& json, Result<Value> (*from_json)(const Json&)) {
  const auto value = from_json(json);
  if (!value) return;
  const auto written = to_json(*value).dump();
  const auto again = from_json(*parse_json(written));
  fuzz::require(again.has_value() && to_json(*again).dump() == written);
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = parse_json(fuzz::text_of(data, size));
  if (!json) return 0;
  round_trip<RunPlan>(*json, run_plan_from_json);
  round_trip<LoadPlan>(*json, load_plan_from_json);
  round_trip<Facts>(*json, facts_from_json);
  if (const auto plan = run_plan_from_json(*json)) {
    (void)validate(*plan);
    (void)validate_tokens(*plan, 100);
  }
  return 0;
}
