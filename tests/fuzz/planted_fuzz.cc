// A reader with a planted fault, which ctest's fuzz.planted must find: a count in the input is believed.
#include <memory>
#include <string_view>

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = culprit::fuzz::text_of(data, size);
  constexpr std::string_view kMagic = "FUZZ";
  if (!text.starts_with(kMagic) || size <= kMagic.size()) return 0;
  const auto values = std::make_unique<char[]>(size);
  const volatile char* read = values.get();
  for (std::size_t i = 0; i < text[kMagic.size()] * std::size_t{2}; ++i) (void)read[i];
  return 0;
}
