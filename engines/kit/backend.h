#pragma once
// What an engine has to offer so that the kit can decode with it: its ops on its own arrays. The kit does the rest: protocol, schedules,
// graph walk, caches, taps, interventions, faults, trace.
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "decode/graph.h"
#include "format/weight.h"
#include "tensor/tensor.h"

namespace culprit::kit {

/// An engine's own tensor, type-erased; the backend casts it back. nullptr is "absent".
using Array = std::shared_ptr<const void>;

/// A weight in the forms that an engine keeps: dense in the run's dtype; packed, scales and biases when it was quantised.
struct BackendWeight {
  Array dense;
  Array packed, scales, biases;
  int bits = 0, group = 0;
};

struct OpRequest {
  const Node* node = nullptr;
  const Facts* facts = nullptr;
  std::string_view variant;               // one of variants(op); never empty
  std::span<const Array> inputs;          // in the order of node->inputs; heads are [row, head, token, channel]
  const BackendWeight* weight = nullptr;  // nullptr when the node has none
  Array bias;                             // dense, in the run's dtype; nullptr when the node has none
  DType dtype = DType::f32;
  std::vector<std::vector<int>> tokens;  // embedding: [row][token]
  // rope: position of the first token of each row. One element: a scalar offset; more: one per row. Token t is at offset + t.
  std::vector<std::int64_t> offset;
  // sdpa: which slots a token sees. Without a mask: all up to its own, the step's tokens being the last slots; `causal` is false when there
  // is one token. With a mask: what it says and nothing else; boolean [row or 1, token, slot]. The node's window is in it.
  // causal_conv and delta_state: with a mask, boolean [row, token] of the first input: tokens that it denies are padding and count for
  // nothing.
  bool causal = false;
  Array mask;
  double scale = 1;
};

class Backend {
 public:
  virtual ~Backend() = default;

  /// Fields of the `hello` answer: engine, version, library, library_sha256, device, switches {name: value}, dtypes [..],
  /// ops {op: {variants: [..], arithmetic: {accumulate: "f32"|"dtype", ..} per variant}}, cache_kinds, syncs.
  [[nodiscard]] virtual Json hello() = 0;
  /// Variants of an op, the default first.
  [[nodiscard]] virtual std::vector<std::string> variants(Op op) = 0;

  /// Copies a host tensor (any layout) to the engine, in its dtype.
  [[nodiscard]] virtual Result<Array> from_host(const Tensor& tensor) = 0;
  /// Evaluates and copies the engine's storage window, with the engine's own strides, offset and storage identity.
  [[nodiscard]] virtual Result<Tensor> to_host(const Array& array) = 0;
  [[nodiscard]] virtual Result<void> eval(std::span<const Array> arrays) = 0;
  /// Begins to evaluate without waiting; eval or to_host waits. An engine without that does nothing.
  [[nodiscard]] virtual Result<void> async_eval(std::span<const Array> arrays) = 0;

  /// Runs one op of any kind but cache_write. Linear with merged heads input gets [row, token, in]:
  /// the kit reshapes. Its result is [row, token, out], and so is an embedding's; the kit splits heads, of slices too. A causal_conv gets the
  /// tokens before this step and those of it in one input, [row, 1, kernel - 1 + token, channel]; a delta_state gets the state before as a
  /// fifth input, if there is one. Rope with a rank-3 input [row * head, token, channel] has
  /// been collapsed by the kit. Error ids: not-supported, engine-error.
  [[nodiscard]] virtual Result<Array> apply(const OpRequest& request) = 0;

  /// Views and cache moves, as the engine does them.
  [[nodiscard]] virtual Result<Array> reshape(const Array& x, const Shape& shape) = 0;
  [[nodiscard]] virtual Result<Array> swap_axes(const Array& x, int axis_a, int axis_b) = 0;
  [[nodiscard]] virtual Result<Array> concatenate(std::span<const Array> parts, int axis) = 0;
  [[nodiscard]] virtual Result<Array> slice(const Array& x, int axis, std::int64_t begin, std::int64_t end) = 0;
  /// x with [begin, begin + update.shape[axis]) along `axis` replaced.
  [[nodiscard]] virtual Result<Array> slice_update(const Array& x, const Array& update, int axis, std::int64_t begin) = 0;
  [[nodiscard]] virtual Result<Array> zeros(const Shape& shape, DType dtype) = 0;
  [[nodiscard]] virtual Shape shape(const Array& x) = 0;

  /// Whether it has the two below; a quantised cache is not-supported otherwise.
  [[nodiscard]] virtual bool quantises() const { return false; }
  /// x [.., channel] in groups of `group` channels, as the engine quantises (decode/affine_groups.h): {packed words, scales, biases}.
  [[nodiscard]] virtual Result<std::vector<Array>> quantise(const Array& x, int bits, int group);
  /// The values of such planes, or of a slice of them, in the dtype of the scales.
  [[nodiscard]] virtual Result<Array> dequantise(std::span<const Array> planes, int bits, int group);

  /// The engine's own GGUF loader: every tensor under its checkpoint name, as it was loaded (packed, scales, biases; or dense).
  /// Error ids: not-supported when the engine has none, engine-error.
  [[nodiscard]] virtual Result<std::vector<std::pair<std::string, Weight>>> load_checkpoint(const std::string& path) = 0;
};

inline Result<std::vector<Array>> Backend::quantise(const Array& /*x*/, int /*bits*/, int /*group*/) {
  return fail("not-supported", "the engine has no op that quantises a cache");
}
inline Result<Array> Backend::dequantise(std::span<const Array> /*planes*/, int /*bits*/, int /*group*/) {
  return fail("not-supported", "the engine has no op that dequantises a cache");
}

/// Serves protocol version 1 on stdin and stdout until `stop` or end of input. Returns the process's exit code.
int serve(Backend& backend);
/// The same on descriptors that stay the caller's, and with stdout left alone.
int serve(Backend& backend, int in, int out);

}  // namespace culprit::kit
