// Writes the small random model that the golden cases decode with: tiny_model FOLDER
#include <cstdio>

#include "decode/model.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto written = culprit::write_random_model(argv[1], {.facts = culprit::tiny_llama_facts()});
  if (!written) std::fprintf(stderr, "%s\n", culprit::to_string(written.error()).c_str());
  return written ? 0 : 1;
}
