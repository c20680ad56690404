#include "cli/verbs.h"

namespace culprit::cli {

std::span<const Verb* const> verbs() {
  static const Verb* const list[] = {
      &kFind,        &kRun,       &kAudit,      &kCompare,   &kExplain,  &kReport,                  // the main job, and its steps
      &kCaseList,    &kCaseRun,                                                                     // public defects
      &kQualify,                                                                                    // how well all of that works
      &kEngineList,  &kEngineAdd, &kEngineInfo, &kModelList, &kModelGet, &kModelMake, &kModelInfo,  // what there is to work on
      &kCompletions, &kHelp,      &kVersion,    &kDocs,
  };
  return list;
}

}  // namespace culprit::cli
