#pragma once
// The register of known upstream defects. A verdict cites one as the cause only if op, mechanism, dtype, condition, release and backend all
// fit; of one whose mechanism alone is the same it says what does not fit.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "num/dtype.h"

namespace culprit {

struct KnownDefect {
  std::string_view reference;  // "mlx 2791"
  std::string_view link;       // "ml-explore/mlx#2791": repository and number of the issue or change
  std::string_view engine;     // engine name, "mlx"
  std::string_view op;         // "rope", "load"; of what is no op of the decode graph the engine's own name: "all"
  std::string_view fault;      // fault id, with the parameters that matter: "F09:table=dtype"; empty: no entry of the catalogue models it
  std::string_view dtypes;     // "bf16 f16"; empty: any
  std::string_view condition;  // predicates that a verdict's condition must hold, joined by " and "; empty: any condition fits
  std::string_view first;      // first affected release; empty: none before `last` is known to be free of it
  std::string_view last;       // last affected release; empty: the releases are not known, so none fits
  std::string_view fixed_in;   // empty: not known
  std::string_view backend;    // "Metal", "CUDA", "CPU"; empty: any
  std::string_view summary;
};

[[nodiscard]] std::span<const KnownDefect> known_defects();
/// "releases up to 0.29.4 on Metal, fixed in 0.30.0"; "releases not known".
[[nodiscard]] std::string releases_of(const KnownDefect& defect);

/// What a verdict knows of a defect.
struct SeenDefect {
  std::string engine_spec;  // NAME@VERSION
  std::string backend;      // the device of the driver's hello: "cpu"
  std::string op;
  std::string fault;      // a FaultSpec's text
  std::string condition;  // as Condition::text
  DType dtype = DType::f32;
};

struct KnownMatch {
  const KnownDefect* defect = nullptr;
  std::vector<std::string> misfits;  // what does not fit, each with both sides; empty: it is the cause
  [[nodiscard]] bool fits() const { return misfits.empty(); }
  [[nodiscard]] std::string text() const;
};

/// Entries of the same mechanism, those that fit in everything first. A condition that is narrower than the register's fits, a wider one does
/// not: the defect was then seen where the known one is not.
[[nodiscard]] std::vector<KnownMatch> match_known(const SeenDefect& seen);

/// Compares dotted versions number by number: negative, 0, positive.
[[nodiscard]] int compare_versions(std::string_view a, std::string_view b);

}  // namespace culprit
