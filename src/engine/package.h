#pragma once
// Packages of the Python index, used as plain archives: pip fetches them, nothing of them is installed or run.
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace culprit {

struct Package {
  std::string name;
  std::string version;
  [[nodiscard]] std::string requirement() const { return name + "==" + version; }
};

/// A release number as the index has them: "0.32.4", "1.0rc1", "2.1.post1".
[[nodiscard]] bool is_package_version(const std::string& version);
/// Releases that pip's refusal of an unknown version lists, in its order; empty when `pip_output` is no such refusal.
[[nodiscard]] std::vector<std::string> versions_offered(const std::string& pip_output);

/// Downloads the packages as wheels and unpacks them all into `folder` (made if missing); the wheels are deleted, their file names and
/// SHA-256 returned as "NAME SHA256". Output of the programs goes to `log`. Error ids: engine-version when the index has no such version
/// (with the nearest ones that it has), package-fetch with the last lines of the log.
[[nodiscard]] Result<std::vector<std::string>> fetch_packages(const std::vector<Package>& packages, const std::filesystem::path& folder,
                                                              const std::filesystem::path& log);

}  // namespace culprit
