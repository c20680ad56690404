#include "cli/verbs.h"

namespace culprit::cli {

std::span<const Verb* const> verbs() {
  static const Verb* const list[] = {
      &kRun,                                                                           // steps of the main job, one by one
      &kExplain,                                                                       //
      &kEngineList,  &kEngineAdd, &kEngineInfo, &kModelList, &kModelGet, &kModelInfo,  // what there is to work on
      &kCompletions, &kHelp,      &kVersion,    &kDocs,
  };
  return list;
}

}  // namespace culprit::cli
