#pragma once
// Plays a case: sets it up, runs `find` as a user would, with no hint of the answer, and holds the verdict against what it must be.
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cases/padded_probe.h"
#include "engine/registry.h"
#include "locate/verdict.h"

namespace culprit {

/// One thing that the case says must be so.
struct Check {
  std::string what;      // "defect 1: op"
  std::string expected;  // "rope"
  std::string seen;
  bool holds = false;
};

struct Played {
  Verdict verdict;
  std::vector<ProbeVerdict> probes;  // of keys and of values, where the case has a probe
  std::vector<Check> checks;
  [[nodiscard]] bool holds() const;
};

struct PlayOptions {
  std::string engine;          // in place of the case's own, where that is ref; empty: the case's
  std::filesystem::path work;  // for models, traces and logs
  std::function<void(const std::string&)> progress;
};

/// The model is made or looked up, the faults planted. Error ids: those of find, Registry and FaultSpec; case-invalid when the facts do not
/// fit the architecture, or another engine is asked for than the release that the case is about.
[[nodiscard]] Result<Played> play(const Case& a_case, const Registry& registry, const PlayOptions& options);

/// What the case expects against what a verdict says; `play` does this.
[[nodiscard]] std::vector<Check> check_verdict(const Expected& expected, const Verdict& verdict);

/// The published diagnosis, the verdict, and why they differ; then each check.
[[nodiscard]] std::string to_text(const Case& a_case, const Played& played);
[[nodiscard]] Json to_json(const Case& a_case, const Played& played);

}  // namespace culprit
