#pragma once
// What lies in culprit's home folder: one folder an engine release or model, each with a record of what was put there.
//   engines/mlx@0.32.4/{package/, driver/culprit-mlx, engine.json}
//   models/smollm2/{*.gguf, model.json}
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/package.h"

namespace culprit {

/// An engine that can be fetched. Adding one is one entry in installed.cc and one folder in engines/.
struct KnownEngine {
  std::string_view name;
  std::vector<std::string_view> packages;  // on this platform, all of one version
  std::string_view library;                // inside the unpacked packages
  std::string_view driver;                 // program, and CMake target
};
/// nullptr when there is no such engine, or none on this platform.
[[nodiscard]] const KnownEngine* known_engine(std::string_view name);
/// All names, "ref" too.
[[nodiscard]] std::vector<std::string_view> engine_names();

/// A model that packages ship, in one file or in parts. Adding one is one entry in installed.cc.
struct KnownModel {
  std::string_view name;
  std::string_view summary;                // one line, for people
  std::vector<std::string_view> packages;  // all of one version
  std::string_view version;
  std::vector<std::string_view> parts;  // file names in the packages, in order
  std::string_view file;                // what the parts make, joined
  std::string_view sha256;              // of it
};
[[nodiscard]] std::span<const KnownModel> known_models();
[[nodiscard]] const KnownModel* known_model(std::string_view name);
[[nodiscard]] std::vector<std::string_view> model_names();

/// engine.json
struct EngineRecord {
  std::string name, version;
  std::vector<std::string> wheels;  // "FILE SHA256"
  std::string library;              // relative to the engine's folder
  std::string library_sha256;
  std::string driver;  // relative
  std::string driver_sha256;
  std::string source_hash;  // driver_build.h
};
/// Error ids: file-missing, json-invalid.
[[nodiscard]] Result<EngineRecord> read_engine_record(const std::filesystem::path& folder);
[[nodiscard]] Result<void> write_engine_record(const std::filesystem::path& folder, const EngineRecord& record);

/// model.json
struct ModelRecord {
  std::string name;
  std::string package;  // "WHEEL SHA256", several joined by ", "
  std::string file, sha256;
};
[[nodiscard]] Result<ModelRecord> read_model_record(const std::filesystem::path& folder);
[[nodiscard]] Result<void> write_model_record(const std::filesystem::path& folder, const ModelRecord& record);

/// Writes the files with the names `parts`, wherever they lie in `folder`, one after the other to `out`. Error ids: package-fetch when
/// there is not exactly one of each, file-missing, file-write.
[[nodiscard]] Result<void> join_parts(const std::filesystem::path& folder, std::span<const std::string_view> parts,
                                      const std::filesystem::path& out);

/// Held while something is added to a home: one process at a time.
class HomeLock {
 public:
  /// Calls `waiting` once when another process holds it. Error ids: file-write.
  template <class Waiting>
  [[nodiscard]] static Result<HomeLock> take(const std::filesystem::path& home, Waiting&& waiting) {
    CULPRIT_TRY(auto lock, open(home));
    if (!lock.try_now()) {
      waiting();
      CULPRIT_CHECK(lock.wait());
    }
    return lock;
  }
  ~HomeLock();
  HomeLock(HomeLock&& other) noexcept;
  HomeLock(const HomeLock&) = delete;
  HomeLock& operator=(const HomeLock&) = delete;
  HomeLock& operator=(HomeLock&&) = delete;

 private:
  HomeLock() = default;
  [[nodiscard]] static Result<HomeLock> open(const std::filesystem::path& home);
  [[nodiscard]] bool try_now();
  [[nodiscard]] Result<void> wait();
  int descriptor_ = -1;
};

/// A folder to make something in, beside the place it will be renamed to; gone again unless it was. Removes what a killed process left
/// there: hold the HomeLock.
class Workshop {
 public:
  /// Error ids: file-write.
  [[nodiscard]] static Result<Workshop> open(const std::filesystem::path& parent);
  ~Workshop();
  Workshop(Workshop&& other) noexcept;
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;
  Workshop& operator=(Workshop&&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Renames the folder to `target`, which is replaced when it exists. Error ids: file-write.
  [[nodiscard]] Result<void> become(const std::filesystem::path& target);

 private:
  Workshop() = default;
  std::filesystem::path path_;
};

}  // namespace culprit
