#pragma once
// For tests that need an engine or a model which is not part of the build: they lie in the home that CULPRIT_HOME names.
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/registry.h"

namespace culprit {

/// Without a home only what is built in is there.
inline Registry installed() {
  const char* home = std::getenv("CULPRIT_HOME");
  return {home == nullptr ? "" : home, CULPRIT_SOURCE_DIR, CULPRIT_BINARY_DIR, CULPRIT_BINARY_DIR "/bin"};
}

}  // namespace culprit

/// Ends a test for the want of something installed: a skip, but a failure where all of it was promised to be there (scripts/test).
#define CULPRIT_NOT_INSTALLED(why)                                             \
  do {                                                                         \
    if (std::getenv("CULPRIT_TESTS_NEED_ENGINES") != nullptr) FAIL() << (why); \
    GTEST_SKIP() << (why);                                                     \
  } while (false)
