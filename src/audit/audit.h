#pragma once
// The audit: each op is re-done in float64 from its own recorded inputs, with a bound on what legal arithmetic may change. An op outside
// its bound is wrong in isolation: its own doing, not inherited. Bounds: audit/bounds.h, each with its source.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "decode/model.h"
#include "trace/trace.h"

namespace culprit {

/// Arithmetic that an engine declares (hello.ops.OP.arithmetic): where it differs from the default "accumulates in f32, rounds each
/// output once". What is not declared is assumed and reported as assumed.
struct Arithmetic {
  DType accumulate = DType::f32;
  bool in_dtype = false;  // accumulates in the tensor's own dtype
  bool declared = false;
};

/// A weight that was used as scale * q + bias, with scale and bias as the run's dtype holds them. Both f32 [out, in]; value errs by one
/// rounding of f32.
struct QuantizedValues {
  Tensor value;      // scale q + bias
  Tensor magnitude;  // |scale q| + |bias|: how large the terms are before they cancel
};

/// Weights as an arm used them, by canonical name ("w.layers.0.q").
class UsedWeights {
 public:
  virtual ~UsedWeights() = default;
  /// Dense, in the dtype of the run or exact in f32.
  [[nodiscard]] virtual Result<Tensor> dense(const std::string& canonical) = 0;
  /// None when the checkpoint holds it dense: then every variant of an op uses it so.
  [[nodiscard]] virtual Result<std::optional<QuantizedValues>> quantized(const std::string& canonical);
  /// The parts of what `quantized` gives the values of: integers, and scales and biases in the dtype of the run. None likewise.
  [[nodiscard]] virtual Result<std::optional<Weight>> packed(const std::string& canonical);
};

enum class Judgement { within, precision, corruption, vacuous, not_tested };
[[nodiscard]] std::string_view name_of(Judgement judgement);

/// One place [row, head, token] of one op's output at one step: the worst element there. head is -1 where there is none.
struct Cell {
  int row = 0;
  int head = -1;
  int token = 0;
  double ratio = 0;        // error / bound of the worst element; +inf for NaN or a non-zero error over a zero bound
  std::int64_t over = 0;   // elements outside the corruption bound
  std::int64_t count = 0;  // elements
};

struct OpAudit {
  int node = 0;  // index in the graph
  int step = 0;
  Judgement judgement = Judgement::within;
  std::int64_t count = 0;
  std::int64_t over = 0;                       // outside the bound: corruption
  std::int64_t precision = 0;                  // outside the standard bound but explained by rounding in the dtype
  std::int64_t vacuous = 0;                    // elements within a bound that is as large as their vector's values: it judges nothing
  double ratio_max = 0;                        // error / bound, over elements that are judged
  double standard_ratio_max = 0;               // the same against the bound of the default arithmetic
  double rounding_ratio_max = 0;               // error / bound where one rounding to the dtype is at least a quarter of the bound
  bool rounding_seen = false;                  // there were such elements
  double error_max = 0;                        // absolute
  double expected = 0, actual = 0, bound = 0;  // at the worst element
  std::vector<std::int64_t> worst;             // its index
  std::vector<Cell> cells;                     // all cells
  std::string reason;                          // for not_tested, precision, and shapes that are wrong
  DType dtype = DType::f32;                    // of the output
  std::string variant;                         // of the op; "default" when neither plan nor engine says
  bool assumed = true;                         // its arithmetic was not declared
};

struct AuditReport {
  std::vector<OpAudit> ops;  // in step, then graph order
  [[nodiscard]] Judgement worst() const;
};

struct AuditOptions {
  std::map<std::string, Arithmetic> arithmetic;  // by "OP.VARIANT", and by "OP" for the default variant
  unsigned threads = 0;
};

/// Audits every node whose output and inputs were recorded; others are not_tested with the reason. Linear ops of all steps and traces are
/// done together, so that each weight is read once. One report per trace, in order.
[[nodiscard]] Result<std::vector<AuditReport>> audit(const Model& model, UsedWeights& weights, const std::vector<const Trace*>& traces,
                                                     const AuditOptions& options = {});

}  // namespace culprit
