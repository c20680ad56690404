#pragma once
// A public case: what was reported, how it is set up again, and what culprit must say of it. A case is a file, cases/NAME.json.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace culprit {

/// What people said in public, in our words.
struct Published {
  std::string where;      // "mlx-rs pull request 338"
  std::string symptom;    // what was seen
  std::string diagnosis;  // what was blamed
  std::string turn;       // how that came about
};

/// The model and the engine; facts that the architecture's tiny model has are only those that differ.
struct Setting {
  std::string engine = "ref";  // a case of a released defect names its release
  std::string architecture;    // of a seeded random model, or
  std::string model;           // the name of an installed one
  Json facts = Json::object();
  std::string size = "tiny";
  int bits = 0;  // of quantised weights; 0: dense
  std::uint64_t seed = 1;
  int rows = 3;
  std::string dtype = "f32";
  std::string cache = "concat";
  std::vector<std::string> faults;  // planted: the defect, where no package has it
  std::vector<std::string> suspects;
  std::string proof_arm;
  bool probe = false;  // the probe of cases/padded_probe.h beside the search
};

struct ExpectedDefect {
  std::string status = "proved";
  std::string op;
  std::vector<std::string> taps;       // empty: any
  std::string fault;                   // empty: any
  std::vector<std::string> condition;  // parts of its text
  std::vector<std::string> known;      // parts of the register's entries that fit
};

/// A claim of the report, asked of the ledger: whether any run has all of these factors.
struct Question {
  std::string claim;
  std::map<std::string, std::string> runs;
  std::string answer = "shown";  // or the id of the refusal
};

struct Expected {
  std::string verdict;
  std::vector<ExpectedDefect> defects;
  std::map<std::string, std::string> suspects;  // name -> finding
  std::vector<Question> questions;
};

struct Case {
  std::string name;  // of the file
  std::string title;
  Published published;
  Setting setting;
  Expected expected;
  std::string difference;          // why the verdict is another one, or what confirms it
  std::vector<std::string> needs;  // engines and models that have to be installed
};

/// Error ids: case-invalid, json-invalid, file-missing.
[[nodiscard]] Result<Case> read_case(const std::filesystem::path& file);
/// All of a folder, by name. Error ids: those of read_case; file-missing.
[[nodiscard]] Result<std::vector<Case>> read_cases(const std::filesystem::path& folder);

}  // namespace culprit
