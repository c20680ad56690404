#include "decode/model_folder.h"

#include <fmt/format.h>

#include "base/fields.h"
#include "base/file.h"
#include "decode/architecture.h"
#include "decode/facts_json.h"

namespace culprit {
namespace {
constexpr const char* kFormat = "culprit-model";
constexpr int kVersion = 1;
}  // namespace

Result<Facts> read_model_facts(const std::filesystem::path& file) {
  CULPRIT_TRY(const auto json, read_json_file(file));
  std::string format;
  int version = 0;
  Fields fields(json, "model", "json-invalid");
  fields.required("format", format).required("version", version);
  const auto* facts_json = fields.find("facts");
  if (auto whole = fields.done(); !whole) return fail(whole.error().id, whole.error().message, file.string());
  if (format != kFormat || version != kVersion || facts_json == nullptr)
    return fail("model-unsupported", fmt::format("expected a {} of version {} with facts", kFormat, kVersion), file.string());
  auto facts = facts_from_json(*facts_json);
  if (!facts) return fail(facts.error().id, facts.error().message, file.string());
  if (auto fit = check_facts(*facts); !fit) return fail(fit.error().id, fit.error().message, file.string());
  return facts;
}

Result<void> write_model_facts(const std::filesystem::path& file, const Facts& facts) {
  const Json json{{"format", kFormat}, {"version", kVersion}, {"facts", to_json(facts)}};
  return write_file_whole(file, json.dump(1) + "\n");
}

}  // namespace culprit
