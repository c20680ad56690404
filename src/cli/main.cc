#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/interrupt.h"

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::filesystem::path default_home() {
  if (const auto home = variable("CULPRIT_HOME"); !home.empty()) return home;
  if (const auto data = variable("XDG_DATA_HOME"); !data.empty()) return std::filesystem::path(data) / "culprit";
  if (const auto home = variable("HOME"); !home.empty()) return std::filesystem::path(home) / ".local/share/culprit";
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  culprit::cli::watch_for_interrupt();
  culprit::cli::Surroundings surroundings;
  surroundings.program = argc > 0 ? argv[0] : "culprit";
  surroundings.default_home = default_home();
  surroundings.colour_out = ::isatty(STDOUT_FILENO) == 1 && variable("NO_COLOR").empty() && variable("TERM") != "dumb";
  return culprit::cli::run(surroundings, std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
