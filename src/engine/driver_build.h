#pragma once
// Builds an engine's driver from its sources against a package and this build of culprit.
#include <filesystem>
#include <string>

#include "base/result.h"

namespace culprit {

struct DriverSources {
  std::filesystem::path sources;     // the driver's project: CMakeLists.txt and sources
  std::filesystem::path build_tree;  // culprit's: culprit-targets.cmake and the archives listed in culprit-archives.txt
};

/// SHA-256 over everything of culprit's that ends up in the driver: names and contents of its sources and of the archives. Two drivers of
/// one package and one hash are interchangeable. Error ids: engine-build when something is missing.
[[nodiscard]] Result<std::string> source_hash(const DriverSources& from);

/// Configures and builds in `work`, and copies the program to `driver`. Output goes to `log`. Error ids: engine-build with the first error
/// and the last lines of the log.
[[nodiscard]] Result<void> build_driver(const DriverSources& from, const std::filesystem::path& package, const std::filesystem::path& work,
                                        const std::filesystem::path& driver, const std::filesystem::path& log);

}  // namespace culprit
