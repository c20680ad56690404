#pragma once
// safetensors: 8 bytes header length (little-endian), JSON header, data. Reader maps the file and checks every length and offset.
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "tensor/tensor.h"

namespace culprit {

class Safetensors {
 public:
  /// Error ids: file-missing, safetensors-invalid (with file and offset).
  [[nodiscard]] static Result<Safetensors> open(const std::filesystem::path& path);
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  [[nodiscard]] bool contains(const std::string& name) const { return tensors_.contains(name); }
  /// A view into the mapping, no copy. Error ids: safetensors-invalid when there is no such tensor.
  [[nodiscard]] Result<Tensor> tensor(const std::string& name) const;
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::filesystem::path path_;
  std::vector<std::string> names_;  // in file order
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Written whole, then renamed. Strided tensors are written in logical order. Error ids: file-write.
[[nodiscard]] Result<void> write_safetensors(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                                             const std::map<std::string, std::string>& metadata = {});

}  // namespace culprit
