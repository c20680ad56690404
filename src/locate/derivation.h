#pragma once
// A verdict taken apart again: each conclusion as a derivation over the runs of its document. Nothing is believed: that runs were made, that
// two compared runs differ in one factor and which, and that the status follows from what was shown are all checked anew.
#include <optional>
#include <string>
#include <vector>

#include "locate/ledger.h"
#include "locate/verdict.h"

namespace culprit {

/// One line of a derivation.
struct DerivationStep {
  Claim claim;
  std::optional<Error> refused;  // why it may not be used: never-run, confounded, library-changed, cannot-show, not-derived
};

/// "defect 1: proved rope, F01:content=input", and what it rests on.
struct Derivation {
  std::string conclusion;
  std::vector<DerivationStep> steps;
  std::optional<Error> refused;  // not-derived when its steps do not carry it
  [[nodiscard]] bool holds() const;
};

struct VerdictReading {
  Ledger ledger;
  std::vector<Derivation> derivations;  // one for each defect, or one for no_divergence
  std::vector<std::string> decisions;   // why each experiment was chosen
};

/// "runs 2, 34", "runs 4, .. 54: 51 in all"; "no run".
[[nodiscard]] std::string runs_text(const std::vector<int>& entries);

/// Reads a document of `find --json`. Error ids: verdict-invalid.
[[nodiscard]] Result<VerdictReading> read_verdict(const Json& document);

/// Conclusions with their steps, each with its runs and the factor in which they differ; then the runs that are cited.
[[nodiscard]] std::string to_text(const VerdictReading& reading);

}  // namespace culprit
