#include "cases/case.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fields.h"

namespace culprit {
namespace {

constexpr std::string_view kInvalid = "case-invalid";

Result<const Json*> object_at(Fields& fields, const char* key, const std::filesystem::path& file) {
  const auto* json = fields.find(key);
  if (json == nullptr || !json->is_object()) return fail("case-invalid", fmt::format("it has no object '{}'", key), file.string());
  return json;
}

Result<Published> read_published(const Json& json) {
  Published published;
  Fields fields(json, "published", kInvalid);
  fields.required("where", published.where).required("symptom", published.symptom);
  fields.required("diagnosis", published.diagnosis).required("turn", published.turn);
  CULPRIT_CHECK(fields.done());
  return published;
}

Result<Setting> read_setting(const Json& json) {
  Setting setting;
  Fields fields(json, "setting", kInvalid);
  fields.optional("engine", setting.engine).optional("architecture", setting.architecture).optional("model", setting.model);
  fields.optional("size", setting.size).optional("bits", setting.bits).optional("seed", setting.seed).optional("rows", setting.rows);
  fields.optional("dtype", setting.dtype).optional("cache", setting.cache).optional("faults", setting.faults);
  fields.optional("suspects", setting.suspects).optional("proof_arm", setting.proof_arm).optional("probe", setting.probe);
  if (const auto* facts = fields.find("facts")) setting.facts = *facts;
  CULPRIT_CHECK(fields.done());
  if (setting.architecture.empty() == setting.model.empty())
    return fail("case-invalid", "setting: expected either an architecture or a model");
  if (!setting.facts.is_object()) return fail("case-invalid", "setting: facts are no object");
  return setting;
}

Result<ExpectedDefect> read_defect(const Json& json) {
  ExpectedDefect defect;
  Fields fields(json, "expected defect", kInvalid);
  fields.optional("status", defect.status).required("op", defect.op).optional("taps", defect.taps).optional("fault", defect.fault);
  fields.optional("condition", defect.condition).optional("known", defect.known);
  CULPRIT_CHECK(fields.done());
  return defect;
}

Result<Question> read_question(const Json& json) {
  Question question;
  Fields fields(json, "question", kInvalid);
  fields.required("claim", question.claim).required("runs", question.runs).optional("answer", question.answer);
  CULPRIT_CHECK(fields.done());
  return question;
}

template <class T>
Result<std::vector<T>> read_list(const Json* json, const char* what, Result<T> (*read)(const Json&)) {
  std::vector<T> list;
  if (json == nullptr) return list;
  if (!json->is_array()) return fail("case-invalid", fmt::format("{} is no list", what));
  for (const auto& item : *json) {
    CULPRIT_TRY(auto value, read(item));
    list.push_back(std::move(value));
  }
  return list;
}

Result<Expected> read_expected(const Json& json) {
  Expected expected;
  Fields fields(json, "expected", kInvalid);
  fields.required("verdict", expected.verdict).optional("suspects", expected.suspects);
  const auto *defects = fields.find("defects"), *questions = fields.find("questions");
  CULPRIT_CHECK(fields.done());
  CULPRIT_TRY(expected.defects, read_list(defects, "defects", read_defect));
  CULPRIT_TRY(expected.questions, read_list(questions, "questions", read_question));
  return expected;
}

Result<Case> case_from_json(const Json& json, const std::filesystem::path& file) {
  Case read;
  read.name = file.stem().string();
  Fields fields(json, "case", kInvalid);
  fields.required("title", read.title).required("difference", read.difference).optional("needs", read.needs);
  CULPRIT_TRY(const auto* published, object_at(fields, "published", file));
  CULPRIT_TRY(const auto* setting, object_at(fields, "setting", file));
  CULPRIT_TRY(const auto* expected, object_at(fields, "expected", file));
  CULPRIT_CHECK(fields.done());
  CULPRIT_TRY(read.published, read_published(*published));
  CULPRIT_TRY(read.setting, read_setting(*setting));
  CULPRIT_TRY(read.expected, read_expected(*expected));
  return read;
}

}  // namespace

Result<Case> read_case(const std::filesystem::path& file) {
  CULPRIT_TRY(const auto json, read_json_file(file));
  auto read = case_from_json(json, file);
  if (!read) return fail(read.error().id, read.error().message, file.string());
  return read;
}

Result<std::vector<Case>> read_cases(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  if (error) return fail("file-missing", error.message(), folder.string());
  std::ranges::sort(files);
  std::vector<Case> cases;
  for (const auto& file : files) {
    CULPRIT_TRY(auto read, read_case(file));
    cases.push_back(std::move(read));
  }
  return cases;
}

}  // namespace culprit
