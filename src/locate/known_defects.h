#pragma once
// The register of known upstream defects. A verdict cites one as the cause only if op, mechanism, dtype and release all fit; when only
// the release does not, it says so.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "num/dtype.h"

namespace culprit {

struct KnownDefect {
  std::string_view reference;  // "mlx 2791"
  std::string_view engine;     // engine name, "mlx"
  std::string_view op;         // "rope", "load"
  std::string_view fault;      // fault id, with the parameters that matter: "F09:table=dtype"
  std::string_view dtypes;     // "bf16 f16", empty: any
  std::string_view first;      // first affected release, empty: unknown
  std::string_view last;       // last affected release
  std::string_view fixed_in;
  std::string_view backend;  // "Metal", empty: any
  std::string_view summary;
};

[[nodiscard]] std::span<const KnownDefect> known_defects();

struct KnownMatch {
  const KnownDefect* defect = nullptr;
  bool release_fits = false;
  [[nodiscard]] std::string text() const;
};

/// `engine_spec` is NAME@VERSION; `fault` a FaultSpec's text. Full matches first; empty when op and mechanism fit none.
[[nodiscard]] std::vector<KnownMatch> match_known(std::string_view engine_spec, std::string_view op, std::string_view fault, DType dtype);

/// Compares dotted versions number by number: negative, 0, positive.
[[nodiscard]] int compare_versions(std::string_view a, std::string_view b);

}  // namespace culprit
