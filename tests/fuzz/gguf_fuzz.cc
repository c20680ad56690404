// A GGUF file: every tensor of one that opens is read.
#include "format/gguf.h"
#include "tests/fuzz/fuzz.h"

using namespace culprit;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = Gguf::open(fuzz::file_of(data, size));
  if (!file) {
    fuzz::require(file.error().id == "gguf-invalid" || file.error().id == "gguf-unsupported");
    fuzz::require(file.error().where.find(" @ ") != std::string::npos);
    return 0;
  }
  for (const auto& [key, value] : file->metadata()) {
    (void)file->number(key);
    (void)file->text(key);
  }
  for (const auto& tensor : file->tensors()) {
    fuzz::require(tensor.offset <= size && tensor.bytes <= size - tensor.offset);
    const auto weight = file->weight(tensor.name);
    if (!weight) {
      fuzz::require(weight.error().id == "gguf-unsupported");
      continue;
    }
    fuzz::require(weight->shape() == tensor.shape);
    fuzz::require(weight->to_f32().count() == element_count(tensor.shape));
    (void)weight->hash_f32();
  }
  return 0;
}
