#pragma once
// What a user suspects, each tested alone: cleared or charged by the audit of its own outputs, and by the run with the defect in which it
// alone is made right.
#include <string>
#include <string_view>
#include <vector>

#include "locate/explore.h"
#include "locate/verdict.h"

namespace culprit {

/// A name for some nodes of the graph: an op, or a part of the decoder that people blame.
struct Suspect {
  std::string name;                                     // "cache", "sdpa", "quantized_matmul"
  std::string what;                                     // the nodes, in words
  bool (*covers)(const Node&, const Facts&) = nullptr;  // nothing: all nodes of `op`
  Op op = Op::add;
};

/// All of them: the parts first, then every op by its name.
[[nodiscard]] std::vector<Suspect> all_suspects();
/// Names separated by commas; "all": every op that the graph has. Error ids: suspect-unknown (with the nearest name).
[[nodiscard]] Result<std::vector<Suspect>> parse_suspects(std::string_view text, const Graph& graph);

/// A run with the defect, and the same run with every guilty op made right.
struct DefectRuns {
  const AuditedRun* bad = nullptr;
  const AuditedRun* right = nullptr;
};

/// Tests each alone. `defect`: nothing when no op was outside its bound; then the audit alone judges. Costs two runs for each suspect whose
/// nodes are in the graph and clean.
[[nodiscard]] Result<std::vector<SuspectOutcome>> test_suspects(Session& session, const Model& model, UsedWeights& weights,
                                                                const Exploration& exploration, const DefectRuns& defect,
                                                                const std::vector<Suspect>& suspects);

}  // namespace culprit
