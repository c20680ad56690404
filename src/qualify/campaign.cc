#include "qualify/campaign.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "base/version.h"

namespace culprit {
namespace {
namespace fs = std::filesystem;

std::string engine_word(const EngineInfo& engine) { return engine.name == "ref" ? "ref" : engine.spec(); }

/// What two campaigns must have in common to be one.
Json header_of(const CampaignSettings& settings) {
  return {{"schema", "culprit-qualify"},
          {"version", 1},
          {"culprit", version()},
          {"engine", engine_word(settings.engine)},
          {"driver_sha256", settings.engine.driver_sha256},
          {"library_sha256", settings.engine.library_sha256},
          {"seed", settings.seed},
          {"count", settings.count},
          {"nulls", settings.nulls},
          {"catalogue", catalogue_hash()}};
}

std::vector<std::string> names_of(const CampaignSettings& settings) {
  std::vector<std::string> names;
  for (int i = 1; i <= settings.count; ++i) names.push_back(fault_case_name(i));
  for (int i = 1; i <= settings.nulls; ++i) names.push_back(null_case_name(i));
  return names;
}

Result<void> check_header(const Json& found, const Json& expected, const fs::path& file) {
  for (const auto& [key, value] : expected.items())
    if (!found.is_object() || !found.contains(key) || found.at(key) != value)
      return fail("campaign-other",
                  fmt::format("{} is {} there, expected {}: another campaign; give another --out", key,
                              found.is_object() && found.contains(key) ? found.at(key).dump() : "missing", value.dump()),
                  file.string());
  return {};
}

/// The scores that the file holds, by case. A torn last line is cut off; a file that is not there begins with its header.
Result<std::map<std::string, CaseScore>> resume(const fs::path& file, const Json& header) {
  std::map<std::string, CaseScore> done;
  std::error_code error;
  if (!fs::exists(file, error)) {
    CULPRIT_CHECK(append_file(file, header.dump() + "\n"));
    return done;
  }
  CULPRIT_TRY(auto text, read_file(file));
  const auto whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  if (whole < text.size()) {
    text.resize(whole);
    CULPRIT_CHECK(write_file_whole(file, text));
  }
  if (text.empty()) {
    CULPRIT_CHECK(append_file(file, header.dump() + "\n"));
    return done;
  }
  int line_number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = text.find('\n', begin);
    const auto where = fmt::format("{}:{}", file.string(), ++line_number);
    CULPRIT_TRY(const auto json, parse_json(std::string_view(text).substr(begin, end - begin), where));
    begin = end + 1;
    if (line_number == 1) {
      CULPRIT_CHECK(check_header(json, header, file));
      continue;
    }
    auto score = case_score_from_json(json);
    if (!score) return fail("json-invalid", score.error().message, where);
    done[score->name] = *std::move(score);
  }
  return done;
}

std::string progress_line(const CaseScore& score, std::size_t done, std::size_t all) {
  std::string how(name_of(score.outcome));
  if (score.outcome == Outcome::localised) how += score.proved() ? ", proved" : score.explained() ? ", explained" : "";
  if (score.wrong_fault()) how += ", a wrong fault accepted";
  return fmt::format("{} of {}: case {}: {}{} ({:.1f} s)", done, all, score.name, how, score.why.empty() ? "" : ": " + score.why,
                     score.seconds);
}

/// Threads take the next case each until none is left or one fails.
class Workers {
 public:
  Workers(const CampaignSettings& settings, std::vector<std::string> names, std::map<std::string, CaseScore>& done)
      : settings_(settings), names_(std::move(names)), all_(names_.size()), done_(done) {
    std::erase_if(names_, [&](const std::string& name) { return done_.contains(name); });
  }

  Result<void> run() {
    std::vector<std::thread> threads;
    for (int job = 1; job < settings_.jobs; ++job) threads.emplace_back([this, job] { work(job); });
    work(0);
    for (auto& thread : threads) thread.join();
    if (error_) return tl::unexpected(*error_);
    return {};
  }

 private:
  void work(int job) {
    const auto folder = settings_.work / fmt::format("job-{}", job);
    while (const auto name = next()) {
      auto run = run_case(settings_.engine, settings_.seed, *name, folder);
      std::error_code ignored;
      fs::remove_all(folder, ignored);
      keep(run ? Result<CaseScore>(std::move(run->score)) : tl::unexpected(std::move(run).error()));
    }
  }

  std::optional<std::string> next() {
    const std::lock_guard lock(mutex_);
    if (error_ || taken_ == names_.size()) return std::nullopt;
    return names_[taken_++];
  }

  void keep(Result<CaseScore> score) {
    const std::lock_guard lock(mutex_);
    if (score && !settings_.out.empty())
      if (auto written = append_file(settings_.out / kCasesFile, to_json(*score).dump() + "\n"); !written)
        score = tl::unexpected(std::move(written).error());
    if (!score) {
      if (!error_) error_ = std::move(score).error();
      return;
    }
    done_[score->name] = *score;
    if (settings_.progress) settings_.progress(progress_line(*score, done_.size(), all_));
  }

  const CampaignSettings& settings_;
  std::vector<std::string> names_;
  std::size_t all_;
  std::map<std::string, CaseScore>& done_;
  std::mutex mutex_;
  std::size_t taken_ = 0;
  std::optional<Error> error_;
};

}  // namespace

Result<Campaign> run_campaign(const CampaignSettings& settings) {
  std::map<std::string, CaseScore> done;
  if (!settings.out.empty()) {
    std::error_code error;
    fs::create_directories(settings.out, error);
    if (error) return fail("file-write", error.message(), settings.out.string());
    CULPRIT_TRY(done, resume(settings.out / kCasesFile, header_of(settings)));
  }
  const auto names = names_of(settings);
  CULPRIT_CHECK(Workers(settings, names, done).run());
  Campaign campaign;
  campaign.engine = engine_word(settings.engine);
  campaign.count = settings.count;
  campaign.nulls = settings.nulls;
  campaign.seed = settings.seed;
  for (const auto& name : names) {
    CULPRIT_TRY(auto drawn, draw_case(settings.seed, name, done.at(name).attempt));
    campaign.cases.push_back({std::move(drawn), done.at(name)});
  }
  return campaign;
}

}  // namespace culprit
