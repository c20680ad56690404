// A trace folder of one step. The input is trace.json, taps.jsonl and the step's file, with a byte 0x1e between them.
#include "tests/fuzz/fuzz.h"
#include "trace/format.h"
#include "trace/trace.h"

using namespace culprit;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFolder folder{std::string(trace_format::kHeaderFile), std::string(trace_format::kTapsFile),
                                         trace_format::step_file_name(0)};
  auto parts = fuzz::parts_of(fuzz::text_of(data, size), 3);
  parts.resize(3);
  for (std::size_t i = 0; i < parts.size(); ++i) folder.file(i).put(parts[i]);
  const auto trace = Trace::open(folder.path());
  if (!trace) {
    fuzz::require(trace.error().id == "trace-invalid");
    return 0;
  }
  fuzz::require(trace->complete() == trace->ended_by().empty());
  for (const auto& record : trace->records()) {
    fuzz::require(trace->find(record.step, record.tap) != nullptr);
    const auto tensor = trace->tensor(record);
    fuzz::require(tensor.has_value() != record.file.empty());
    if (tensor) fuzz::read_all(*tensor);
    (void)trace->verify(record);
  }
  return 0;
}
