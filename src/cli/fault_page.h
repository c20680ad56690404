#pragma once
// The reference page of the fault catalogue and of the register of known defects.
#include <string>

#include "fault/fault.h"
#include "locate/known_defects.h"

namespace culprit::cli {

/// A section of docs/faults.md: what the entry computes, its parameters, look-alikes, known defects, and how to plant it.
[[nodiscard]] std::string fault_section(const FaultEntry& fault);
/// A known defect in a few lines.
[[nodiscard]] std::string known_defect_text(const KnownDefect& defect);
/// docs/faults.md
[[nodiscard]] std::string faults_page();

}  // namespace culprit::cli
