#include "engines/ref/program_path.h"

#ifdef __APPLE__
#include <mach-o/dyld.h>

#include <array>
#else
#include <filesystem>
#endif

namespace culprit::ref {

std::string program_path(const char* otherwise) {
#ifdef __APPLE__
  std::array<char, 4096> path{};
  auto size = static_cast<unsigned>(path.size());
  return _NSGetExecutablePath(path.data(), &size) == 0 ? std::string(path.data()) : std::string(otherwise);
#else
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::string(otherwise) : path.string();
#endif
}

}  // namespace culprit::ref
