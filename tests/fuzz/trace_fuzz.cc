// A line of a trace's taps.jsonl: a record that is accepted is written and read again without change.
#include "base/json.h"
#include "tests/fuzz/fuzz.h"
#include "trace/trace.h"

using namespace culprit;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = parse_json(fuzz::text_of(data, size));
  if (!json) return 0;
  const auto record = tap_record_from_json(*json);
  if (!record) {
    fuzz::require(record.error().id == "trace-invalid" || record.error().id == "dtype-unknown");
    return 0;
  }
  const auto written = to_json(*record).dump();
  const auto again = tap_record_from_json(*parse_json(written));
  fuzz::require(again.has_value() && to_json(*again).dump() == written);
  return 0;
}
