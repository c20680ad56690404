// gguf_values FILE OUT: prints "NAME TYPE SHAPE" for each tensor of a GGUF file and writes all values to OUT as f32.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "base/file.h"
#include "format/gguf.h"

using namespace culprit;

namespace {
Result<void> write_values(const char* in, const char* out) {
  CULPRIT_TRY(const auto file, Gguf::open(in));
  CULPRIT_TRY(auto writer, FileWriter::create(out));
  for (const auto& tensor : file.tensors()) {
    CULPRIT_TRY(const auto weight, file.weight(tensor.name));
    CULPRIT_CHECK(writer.append(weight.to_f32().contiguous_bytes()));
    fmt::print("{} {} {}\n", tensor.name, weight.source_type, fmt::join(weight.shape(), "x"));
  }
  return writer.commit();
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto done = write_values(argv[1], argv[2]);
  if (!done) fmt::print(stderr, "{}\n", to_string(done.error()));
  return done ? 0 : 1;
}
