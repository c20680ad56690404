#include "cli/context.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "cli/places.h"

namespace culprit::cli {

Context::Context(const Surroundings& surroundings, std::filesystem::path home, bool json, bool quiet)
    : surroundings_(surroundings),
      registry_(std::move(home), source_folder(), build_folder(), program_folder(surroundings.program)),
      json_(json),
      quiet_(quiet) {}

void Context::out(std::string_view text) const { std::fwrite(text.data(), 1, text.size(), stdout); }

void Context::out_json(const Json& document) const { out(document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"); }

void Context::progress(const std::string& line) const {
  if (!quiet_) fmt::print(stderr, "culprit: {}\n", line);
}

Progress Context::progress_sink() const {
  return [this](const std::string& line) { progress(line); };
}

Result<void> Context::flush() const {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  return fail("file-write", std::generic_category().message(errno), "stdout", errno);
}

}  // namespace culprit::cli
