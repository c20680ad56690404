// The driver on MLX's C++ library: culprit's protocol, version 1, on stdin and stdout.
#include "mlx_backend.h"

int main() {
  culprit::mlx_engine::MlxBackend backend;
  return culprit::kit::serve(backend);
}
