#include "engine/subprocess.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <deque>
#include <sstream>

#include "base/file.h"

namespace culprit {
namespace {
constexpr std::chrono::seconds kGraceAfterTerm(2);  // for pip and build tools to remove what is half done
}

std::string Finished::reason(std::chrono::seconds limit) const {
  return timed_out ? fmt::format("no end within {} s", limit.count()) : ending.text();
}

Result<Finished> run_program(const std::vector<std::string>& argv, const std::filesystem::path& log, std::chrono::seconds limit) {
  CULPRIT_TRY(auto child,
              ChildProcess::start({.argv = argv, .log = log, .temporary_folder = {}, .streams = ChildProcess::Streams::logged}));
  Finished finished;
  finished.timed_out = !child.wait_for_exit(limit);
  child.end(kGraceAfterTerm);
  finished.ending = child.ending();
  return finished;
}

std::string last_lines(const std::filesystem::path& log, std::size_t count) {
  const auto text = read_file(log);
  if (!text) return {};
  std::deque<std::string> lines;
  std::istringstream stream(*text);
  for (std::string line; std::getline(stream, line);) {
    const auto end = line.find_last_not_of(" \t\r");
    if (end == std::string::npos) continue;
    lines.push_back(line.substr(0, end + 1));
    if (lines.size() > count) lines.pop_front();
  }
  return fmt::format("{}", fmt::join(lines, " | "));
}

}  // namespace culprit
