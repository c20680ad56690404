#pragma once
// Where this program and what it was built from are.
#include <filesystem>

namespace culprit::cli {

/// The folder of the running program; the built-in engine's driver lies beside it.
[[nodiscard]] std::filesystem::path program_folder(const std::filesystem::path& argv0);
/// culprit's sources and build tree, which engine drivers are built from.
[[nodiscard]] std::filesystem::path source_folder();
[[nodiscard]] std::filesystem::path build_folder();

}  // namespace culprit::cli
