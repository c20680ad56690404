#include "engine/package.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <regex>

#include "base/file.h"
#include "base/hash.h"
#include "engine/subprocess.h"

namespace culprit {
namespace {
namespace fs = std::filesystem;

constexpr std::chrono::seconds kFetchLimit(900);  // 100 MB at 1 Mbit/s
constexpr std::chrono::seconds kUnpackLimit(300);
constexpr std::size_t kLogLines = 4;
constexpr std::size_t kVersionsShown = 5;

std::vector<int> numbers_of(const std::string& version) {
  std::vector<int> numbers;
  static const std::regex digits("[0-9]{1,9}");
  for (auto match = std::sregex_iterator(version.begin(), version.end(), digits); match != std::sregex_iterator(); ++match)
    numbers.push_back(std::stoi(match->str()));
  return numbers;
}

/// The versions around the place where the wanted one would stand.
std::vector<std::string> nearest_versions(const std::string& wanted, std::vector<std::string> offered) {
  std::ranges::stable_sort(offered, {}, numbers_of);
  const auto place = std::ranges::lower_bound(offered, numbers_of(wanted), {}, numbers_of) - offered.begin();
  const auto size = static_cast<std::ptrdiff_t>(offered.size()), shown = static_cast<std::ptrdiff_t>(kVersionsShown);
  const auto begin = std::clamp<std::ptrdiff_t>(place - shown / 2, 0, std::max<std::ptrdiff_t>(0, size - shown));
  return {offered.begin() + begin, offered.begin() + std::min(size, begin + shown)};
}

Error fetch_failed(const Package& package, const std::string& reason, const fs::path& log) {
  return {"package-fetch", fmt::format("{} could not be fetched: {}: {}", package.requirement(), reason, last_lines(log, kLogLines)), {}};
}

Result<void> download(const Package& package, const fs::path& wheels, const fs::path& log) {
  std::error_code ignored;
  const auto log_before = fs::exists(log, ignored) ? fs::file_size(log, ignored) : 0;
  const std::vector<std::string> argv = {
      "python3",    "-m", "pip",           "download",           "--no-deps", "--only-binary=:all:", "--disable-pip-version-check",
      "--no-input", "-d", wheels.string(), package.requirement()};
  const auto finished = run_program(argv, log, kFetchLimit);
  if (!finished) return fail("package-fetch", finished.error().message);
  if (finished->ok()) return {};
  const auto text = read_file(log).value_or("");
  const auto offered = versions_offered(text.substr(std::min<std::size_t>(text.size(), log_before)));
  if (offered.empty()) return tl::unexpected(fetch_failed(package, "pip ended with " + finished->reason(kFetchLimit), log));
  return fail("engine-version", fmt::format("the index has no {} {} for this platform; the nearest of its {} releases are {}", package.name,
                                            package.version, offered.size(), fmt::join(nearest_versions(package.version, offered), ", ")));
}

}  // namespace

bool is_package_version(const std::string& version) {
  static const std::regex pattern(R"([0-9]{1,9}(\.[0-9]{1,9}){0,5}((a|b|rc|\.post|\.dev)[0-9]{1,9})?)");
  return version.size() <= 64 && std::regex_match(version, pattern);
}

std::vector<std::string> versions_offered(const std::string& pip_output) {
  static const std::string marker = "(from versions: ";
  std::vector<std::string> versions;
  auto begin = pip_output.find(marker);
  if (begin == std::string::npos) return versions;
  begin += marker.size();
  const auto end = pip_output.find(')', begin);
  if (end == std::string::npos) return versions;
  std::string version;
  for (const char c : pip_output.substr(begin, end - begin) + ",") {
    if (c != ',') {
      if (c != ' ') version += c;
    } else {
      if (is_package_version(version)) versions.push_back(version);  // pip writes "none" when it reached no index
      version.clear();
    }
  }
  return versions;
}

Result<std::vector<std::string>> fetch_packages(const std::vector<Package>& packages, const fs::path& folder, const fs::path& log) {
  const auto wheels = folder / ".wheels";
  std::error_code error;
  fs::create_directories(wheels, error);
  if (error) return fail("file-write", error.message(), wheels.string());
  for (const auto& package : packages) CULPRIT_CHECK(download(package, wheels, log));

  std::vector<fs::path> archives;
  for (const auto& entry : fs::directory_iterator(wheels, error))
    if (entry.path().extension() == ".whl") archives.push_back(entry.path());
  std::ranges::sort(archives);
  if (archives.size() != packages.size())
    return fail("package-fetch", fmt::format("pip reported success, but left {} wheels of {}", archives.size(), packages.size()));
  std::vector<std::string> described;
  for (const auto& archive : archives) {
    CULPRIT_TRY(const auto hash, sha256_file(archive));
    described.push_back(fmt::format("{} {}", archive.filename().string(), hash));
    const auto finished = run_program({"python3", "-m", "zipfile", "-e", archive.string(), folder.string()}, log, kUnpackLimit);
    if (!finished) return fail("package-fetch", finished.error().message);
    if (!finished->ok())
      return fail("package-fetch", fmt::format("{} cannot be unpacked: {}: {}", archive.filename().string(), finished->reason(kUnpackLimit),
                                               last_lines(log, kLogLines)));
  }
  fs::remove_all(wheels, error);
  return described;
}

}  // namespace culprit
