// A safetensors file: every tensor of one that opens is read.
#include "format/safetensors.h"
#include "tests/fuzz/fuzz.h"

using namespace culprit;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = Safetensors::open(fuzz::file_of(data, size));
  if (!file) {
    fuzz::require(file.error().id == "safetensors-invalid");
    return 0;
  }
  for (const auto& name : file->names()) {
    const auto tensor = file->tensor(name);
    fuzz::require(tensor.has_value());
    fuzz::read_all(*tensor);
    fuzz::read_all(tensor->cast(DType::f32));
  }
  return 0;
}
