#include "cli/app.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>

#include "base/error_ids.h"
#include "cli/interrupt.h"
#include "cli/verbs.h"

namespace culprit::cli {
namespace {

/// An error is one line, whatever its message holds.
int report(const Error& error) {
  auto line = to_string(error);
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  fmt::print(stderr, "culprit: {}\n", line);
  return exit_code_of(error.id);
}

Result<int> run_checked(const Surroundings& surroundings, const std::vector<std::string>& words) {
  CULPRIT_TRY(const auto parsed, parse(verbs(), words));
  const auto& arguments = parsed.arguments;
  const auto home = arguments.has("home") ? std::filesystem::path(*arguments.value("home")) : surroundings.default_home;
  std::error_code error;
  const auto absolute_home = std::filesystem::absolute(home, error);
  if (home.empty() || error) return fail("usage", "there is no home folder: set --home, CULPRIT_HOME, XDG_DATA_HOME or HOME");
  Context context(surroundings, absolute_home, arguments.has("json"), arguments.has("quiet"));
  CULPRIT_TRY(const int exit_code, parsed.verb->run(context, arguments));
  CULPRIT_CHECK(context.flush());
  return exit_code;
}

}  // namespace

int run(const Surroundings& surroundings, const std::vector<std::string>& words) {
  Result<int> outcome = 0;
  try {
    outcome = run_checked(surroundings, words);
  } catch (const std::bad_alloc&) {
    outcome = fail("internal", "out of memory");
  } catch (const std::exception& exception) {
    outcome = fail("internal", fmt::format("an exception that nobody expected: {}", exception.what()));
  }
  if (interrupted()) return kInterruptedExitCode;
  return outcome ? *outcome : report(outcome.error());
}

}  // namespace culprit::cli
