#include "engine/driver_build.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "engine/subprocess.h"

namespace culprit {
namespace {
namespace fs = std::filesystem;

constexpr std::chrono::seconds kBuildLimit(1800);  // half a minute on an idle machine; many times that on a busy one
constexpr std::size_t kLogLines = 5;

Result<std::vector<fs::path>> archives_of(const fs::path& build_tree) {
  const auto list = read_file(build_tree / "culprit-archives.txt");
  if (!list) return fail("engine-build", "culprit's build tree has no driver kit; build culprit first", build_tree.string());
  std::vector<fs::path> archives;
  std::istringstream stream(*list);
  for (std::string line; std::getline(stream, line);)
    if (!line.empty()) archives.emplace_back(line);
  return archives;
}

/// The first error that the log reports and the lines after it, so that it is not lost above the build tool's own last words.
std::string first_error(const fs::path& log) {
  std::istringstream stream(read_file(log).value_or(""));
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line) && lines.size() < kLogLines;) {
    const bool is_error = line.find("rror:") != std::string::npos || line.find("CMake Error") != std::string::npos ||
                          line.find("undefined reference") != std::string::npos;
    const auto begin = line.find_first_not_of(" \t");
    if (begin != std::string::npos && (is_error || !lines.empty())) lines.push_back(line.substr(begin));
  }
  return lines.empty() ? last_lines(log, kLogLines) : fmt::format("{}", fmt::join(lines, " | "));
}

/// The generator that culprit itself was built with: the one known to work here.
std::string generator_of(const fs::path& build_tree) {
  static const std::string key = "CMAKE_GENERATOR:INTERNAL=";
  std::istringstream stream(read_file(build_tree / "CMakeCache.txt").value_or(""));
  for (std::string line; std::getline(stream, line);)
    if (line.starts_with(key)) return line.substr(key.size());
  return {};
}

Result<void> run_step(const std::vector<std::string>& argv, const fs::path& log) {
  const auto finished = run_program(argv, log, kBuildLimit);
  if (!finished) return fail("engine-build", finished.error().message);
  if (finished->ok()) return {};
  return fail("engine-build", fmt::format("'{} {}' ended with {}: {}", argv[0], argv[1], finished->reason(kBuildLimit), first_error(log)));
}

}  // namespace

Result<std::string> source_hash(const DriverSources& from) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(from.sources, error))
    if (entry.is_regular_file() && !entry.path().filename().string().starts_with('.')) files.push_back(entry.path());
  if (error || files.empty()) return fail("engine-build", "the driver's sources cannot be read", from.sources.string());
  CULPRIT_TRY(const auto archives, archives_of(from.build_tree));
  files.insert(files.end(), archives.begin(), archives.end());
  std::ranges::sort(files, {}, [](const fs::path& path) { return path.filename(); });
  std::string lines;
  for (const auto& file : files) {
    const auto hash = sha256_file(file);
    if (!hash) return fail("engine-build", "missing; build culprit first", file.string());
    lines += fmt::format("{} {}\n", file.filename().string(), *hash);
  }
  return sha256(std::as_bytes(std::span(lines.data(), lines.size())));
}

Result<void> build_driver(const DriverSources& from, const fs::path& package, const fs::path& work, const fs::path& driver,
                          const fs::path& log) {
  std::error_code error;
  fs::create_directories(driver.parent_path(), error);
  if (error) return fail("file-write", error.message(), driver.parent_path().string());
  const auto target = driver.filename().string();
  std::vector<std::string> configure = {"cmake",
                                        "-S",
                                        from.sources.string(),
                                        "-B",
                                        work.string(),
                                        "-DENGINE_PACKAGE=" + package.string(),
                                        "-DCULPRIT_BUILD_TREE=" + from.build_tree.string()};
  if (const auto generator = generator_of(from.build_tree); !generator.empty()) configure.insert(configure.end(), {"-G", generator});
  CULPRIT_CHECK(run_step(configure, log));
  CULPRIT_CHECK(run_step({"cmake", "--build", work.string(), "--target", target, "--parallel"}, log));
  const auto made = driver.parent_path() / (".new-" + target);
  fs::copy_file(work / target, made, fs::copy_options::overwrite_existing, error);
  if (!error) fs::rename(made, driver, error);  // whole or as it was, even while the old one runs
  if (error) return fail("engine-build", fmt::format("the driver cannot be put in place: {}", error.message()), driver.string());
  return {};
}

}  // namespace culprit
