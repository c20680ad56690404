#pragma once
// The facts of an architecture and a checkpoint from which the decode graph follows.
#include <cstdint>
#include <string>

namespace culprit {

enum class RopePairing { half, interleaved };  // (i, i + d/2), or (2i, 2i + 1)
enum class RopeScaling { none, linear, llama3 };

struct RopeFacts {
  int dims = 0;  // rotated channels of a head; the rest pass through
  double base = 10000;
  RopePairing pairing = RopePairing::half;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;                 // linear and llama3
  double low_frequency_factor = 1;   // llama3
  double high_frequency_factor = 4;  // llama3
  double original_context = 8192;    // llama3, positions
};

struct Facts {
  std::string architecture;  // "llama"
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_channels = 0;
  int mlp_hidden = 0;
  int vocabulary = 0;
  int context = 0;  // positions
  double norm_epsilon = 1e-5;
  bool tied_head = false;
  RopeFacts rope;
};

}  // namespace culprit
