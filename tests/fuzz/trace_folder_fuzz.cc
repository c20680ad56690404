// A trace folder of one step. The input is trace.json, taps.jsonl and the step's file, with a byte 0x1e between them.
#include "base/test_dir.h"
#include "tests/fuzz/fuzz.h"
#include "trace/format.h"
#include "trace/trace.h"

using namespace culprit;

namespace {
constexpr char kSeparator = '\x1e';

class Folder {
 public:
  Folder() {
    const std::string names[] = {std::string(trace_format::kHeaderFile), std::string(trace_format::kTapsFile),
                                 trace_format::step_file_name(0)};
    for (std::size_t i = 0; i < 3; ++i) std::filesystem::create_symlink(files_[i].path(), dir_ / names[i]);
  }
  void put(std::string_view input) const {
    for (std::size_t i = 0; i < 3; ++i) {
      const auto end = i < 2 ? input.find(kSeparator) : input.npos;
      files_[i].put(input.substr(0, end));
      input = end == input.npos ? std::string_view() : input.substr(end + 1);
    }
  }
  [[nodiscard]] const std::filesystem::path& path() const { return dir_.path(); }

 private:
  TestDir dir_;
  fuzz::MemoryFile files_[3];
};
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  folder.put(fuzz::text_of(data, size));
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
