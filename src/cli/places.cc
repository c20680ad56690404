#include "cli/places.h"

#ifdef __APPLE__
#include <mach-o/dyld.h>

#include <string>
#endif
#include <system_error>

namespace culprit::cli {
namespace fs = std::filesystem;

fs::path program_folder(const fs::path& argv0) {
  std::error_code error;
#ifdef __APPLE__
  std::uint32_t size = 0;
  _NSGetExecutablePath(nullptr, &size);
  std::string name(size, '\0');
  const auto self = _NSGetExecutablePath(name.data(), &size) == 0 ? fs::canonical(name.c_str(), error) : fs::path();
#else
  const auto self = fs::read_symlink("/proc/self/exe", error);
#endif
  if (!error && !self.empty()) return self.parent_path();
  return fs::absolute(argv0, error).parent_path();
}

fs::path source_folder() { return CULPRIT_SOURCE_FOLDER; }
fs::path build_folder() { return CULPRIT_BUILD_FOLDER; }

}  // namespace culprit::cli
