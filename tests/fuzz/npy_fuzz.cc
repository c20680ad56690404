// An npy file: every element of one that is read.
#include "format/npy.h"
#include "tests/fuzz/fuzz.h"

using namespace culprit;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto tensor = read_npy(fuzz::file_of(data, size));
  if (!tensor) {
    fuzz::require(tensor.error().id == "npy-invalid");
    return 0;
  }
  fuzz::read_all(*tensor);
  fuzz::read_all(tensor->contiguous());
  return 0;
}
