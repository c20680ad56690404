#include "engines/ref/program_path.h"
#include "engines/ref/ref_backend.h"

int main(int, char** argv) {
  culprit::ref::RefBackend backend(culprit::ref::program_path(argv[0]));
  return culprit::kit::serve(backend);
}
