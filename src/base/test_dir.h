#pragma once
// For tests: a folder of its own that goes away with the object.
#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace culprit {

class TestDir {
 public:
  TestDir() {
    auto name = (std::filesystem::temp_directory_path() / "culprit-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a folder like " + name);
    path_ = name;
  }
  ~TestDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestDir(const TestDir&) = delete;
  TestDir& operator=(const TestDir&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace culprit
