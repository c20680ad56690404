#pragma once
// The one list of verbs: it runs, lists, documents and completes them. A verb is one file and one line here and in verbs.cc.
#include <span>

#include "cli/command_line.h"

namespace culprit::cli {

/// In the order of `culprit help`; verbs of a group stand together.
[[nodiscard]] std::span<const Verb* const> verbs();

extern const Verb kFind, kRun, kAudit, kCompare, kExplain, kReport;
extern const Verb kCaseList, kCaseRun;
extern const Verb kQualify;
extern const Verb kEngineList, kEngineAdd, kEngineInfo;
extern const Verb kModelList, kModelGet, kModelMake, kModelInfo;
extern const Verb kCompletions, kHelp, kVersion, kDocs;

}  // namespace culprit::cli
