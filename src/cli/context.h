#pragma once
// What a verb works with: where things are, and where its words go. Data on stdout, all else on stderr.
#include <filesystem>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "engine/registry.h"

namespace culprit::cli {

/// What the process was given from outside; read once, by main.
struct Surroundings {
  std::filesystem::path program;  // argv[0]
  std::filesystem::path default_home;
  bool colour_out = false;  // stdout is a terminal and NO_COLOR is not set
};

class Context {
 public:
  Context(const Surroundings& surroundings, std::filesystem::path home, bool json, bool quiet);

  [[nodiscard]] const Registry& registry() const { return registry_; }
  [[nodiscard]] bool json() const { return json_; }
  [[nodiscard]] bool colour() const { return surroundings_.colour_out && !json_; }

  void out(std::string_view text) const;
  /// One document, on stdout.
  void out_json(const Json& document) const;
  /// One line on stderr, unless --quiet.
  void progress(const std::string& line) const;
  [[nodiscard]] Progress progress_sink() const;
  /// Error ids: file-write when stdout did not take everything.
  [[nodiscard]] Result<void> flush() const;

 private:
  Surroundings surroundings_;
  Registry registry_;
  bool json_, quiet_;
};

}  // namespace culprit::cli
