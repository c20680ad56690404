#pragma once
// A campaign: many cases, several at once, each result a line of DIR/cases.jsonl as soon as it is there; begun again it goes on.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "engine/registry.h"
#include "qualify/run_case.h"

namespace culprit {

inline constexpr const char* kCasesFile = "cases.jsonl";

struct CampaignSettings {
  EngineInfo engine;
  int count = 100;  // cases with faults
  int nulls = 0;
  std::uint64_t seed = 1;
  int jobs = 1;                                      // cases at once
  std::filesystem::path out;                         // for cases.jsonl; made if missing; empty: nothing is kept
  std::filesystem::path work;                        // for models and traces, one case after the other removed
  std::function<void(const std::string&)> progress;  // from one thread at a time
};

struct ScoredCase {
  QualifyCase drawn;
  CaseScore score;
};
struct Campaign {
  std::string engine;  // as on a command line
  int count = 0, nulls = 0;
  std::uint64_t seed = 0;
  std::vector<ScoredCase> cases;  // faults, then nulls, by number
};

/// Results depend on neither `jobs` nor time; only seconds do. Error ids: campaign-other when cases.jsonl is of another seed, count, engine,
/// release or catalogue; json-invalid for a whole line that is none of a case (a torn last line is dropped); file-write; interrupted: what
/// was done is kept.
[[nodiscard]] Result<Campaign> run_campaign(const CampaignSettings& settings);

}  // namespace culprit
