#pragma once
// One case of a campaign: its model is made, find is run on it as users run it, and the verdict is scored.
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/registry.h"
#include "locate/verdict.h"
#include "qualify/score.h"

namespace culprit {

struct CaseRun {
  QualifyCase drawn;
  std::optional<Verdict> verdict;  // nothing when find ended in an error
  CaseScore score;
};

/// Makes the model in `work`/model, and its runs below `work`. Error ids: file-write; interrupted, when children were ended meanwhile.
/// Whatever find says, an error too, is a score.
[[nodiscard]] Result<CaseRun> run_case(const EngineInfo& engine, const QualifyCase& drawn, const std::filesystem::path& work);

/// The case of that name: drawn, run and scored, and drawn again while neither find's runs nor others of its model show the fault.
/// Error ids: as above; option-value.
[[nodiscard]] Result<CaseRun> run_case(const EngineInfo& engine, std::uint64_t campaign_seed, const std::string& name,
                                       const std::filesystem::path& work);

/// "culprit find MODEL --engine ref --dtype bf16 --seed 7 --cache padded --fault F05": the same find on the case's model.
[[nodiscard]] std::string find_command(const EngineInfo& engine, const QualifyCase& drawn, const std::string& model);

/// Plans for runs that find does not make on this model: its arms on other tokens, lengths and positions, and schedules at random.
[[nodiscard]] std::vector<RunPlan> unseen_plans(const QualifyCase& drawn);

}  // namespace culprit
