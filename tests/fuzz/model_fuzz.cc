// A GGUF file as a model: its facts, graph and weights.
#include "decode/model.h"
#include "tests/fuzz/fuzz.h"

using namespace culprit;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto model = Model::open(fuzz::file_of(data, size));
  if (!model) {
    const auto& id = model.error().id;
    fuzz::require(id == "gguf-invalid" || id == "gguf-unsupported" || id == "model-unsupported");
    return 0;
  }
  for (const auto& name : model->weight_names()) {
    fuzz::require(model->canonical_name(model->checkpoint_name(name)) == name);
    const auto weight = model->weight(name);
    fuzz::require(weight.has_value() || weight.error().id == "gguf-unsupported");
  }
  return 0;
}
