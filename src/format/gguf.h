#pragma once
// GGUF versions 2 and 3 (little-endian), read-only: metadata and tensors, mapped; every length, offset and count is checked.
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "format/weight.h"

namespace culprit {

/// Faults of a loader, for predicting what a broken one reads. `nibble_offset` is where the nibbles of a Q4_1 block start: 4 is right.
struct GgufReadFault {
  int q4_1_nibble_offset = 4;
};

using GgufValue = std::variant<std::uint64_t, std::int64_t, double, bool, std::string, std::vector<std::string>, std::vector<double>>;

struct GgufTensor {
  std::string name;
  std::uint32_t type = 0;    // ggml type number
  std::string type_name;     // "Q4_1"
  Shape shape;               // row-major: the reverse of GGUF's own order
  std::uint64_t offset = 0;  // of the data, from the file's begin
  std::uint64_t bytes = 0;
};

class Gguf {
 public:
  /// Error ids: file-missing, gguf-invalid (with file and offset), gguf-unsupported.
  [[nodiscard]] static Result<Gguf> open(const std::filesystem::path& path);
  [[nodiscard]] const std::map<std::string, GgufValue>& metadata() const { return metadata_; }
  [[nodiscard]] const std::vector<GgufTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const GgufTensor* find(const std::string& name) const;
  /// Error ids: gguf-invalid when a number is missing or of another kind.
  [[nodiscard]] Result<double> number(const std::string& key) const;
  [[nodiscard]] Result<std::string> text(const std::string& key) const;
  /// Reads one tensor. Q4_0, Q4_1, Q8_0 become groups of 32 (4, 4, 8 bits; scales and biases f16); Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K and
  /// Q6_K dense f32, each value the exact one rounded once (ggml_dequantise.h); F32, F16, BF16 stay dense, without a copy.
  /// Error ids: gguf-invalid when there is no such tensor, gguf-unsupported for other types.
  [[nodiscard]] Result<Weight> weight(const std::string& name, const GgufReadFault& fault = {}) const;
  [[nodiscard]] const std::filesystem::path& path() const { return file_->path(); }

 private:
  std::shared_ptr<const MappedFile> file_;
  std::map<std::string, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace culprit
