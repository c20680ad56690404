#pragma once
// Facts from the metadata of a GGUF file: the keys that all decoders have, under the architecture's name.
#include <string>

#include "base/result.h"
#include "decode/facts.h"
#include "format/gguf.h"

namespace culprit::gguf {

[[nodiscard]] bool has(const Gguf& file, const std::string& key);
/// Error ids: gguf-invalid when there is no such number, model-unsupported when it is no count.
[[nodiscard]] Result<int> count(const Gguf& file, const std::string& key);
// These leave `out` alone when there is no such key.
[[nodiscard]] Result<void> optional_number(const Gguf& file, const std::string& key, double& out);
[[nodiscard]] Result<void> optional_count(const Gguf& file, const std::string& key, int& out);

/// Counts, norm, rope with `pairing` and scaling none or linear, vocabulary and tied head. Error ids: gguf-invalid, model-unsupported.
[[nodiscard]] Result<Facts> read_facts(const Gguf& file, std::string_view architecture, RopePairing pairing);

}  // namespace culprit::gguf
