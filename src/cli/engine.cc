#include <fmt/format.h>

#include <chrono>

#include "cli/context.h"
#include "cli/interrupt.h"
#include "cli/json_text.h"
#include "cli/verbs.h"
#include "engine/driver_process.h"

namespace culprit::cli {
namespace {

constexpr std::chrono::seconds kHelloLimit(60);

Json to_json(const EngineInfo& engine) {
  return {{"engine", engine.spec()},
          {"name", engine.name},
          {"version", engine.version},
          {"library_sha256", engine.library_sha256},
          {"driver_sha256", engine.driver_sha256},
          {"folder", engine.folder.string()}};
}

Result<int> list(Context& context, const Arguments&) {
  const auto engines = context.registry().engines();
  Json items = Json::array();
  for (const auto& engine : engines) {
    items.push_back(to_json(engine));
    if (!context.json())
      context.out(fmt::format("{:<16} library {:.12}  driver {:.12}\n", engine.spec(), engine.library_sha256, engine.driver_sha256));
  }
  if (context.json()) context.out_json(document("culprit-engines", {{"engines", std::move(items)}}));
  return 0;
}

/// "mlx@0.29.4 0.31.2": a version alone is one more of the engine before it.
std::vector<std::string> specs_from(const std::vector<std::string>& words) {
  std::vector<std::string> specs;
  std::string name;
  for (const auto& word : words) {
    const bool version_alone = !word.empty() && word[0] >= '0' && word[0] <= '9' && word.find('@') == std::string::npos;
    specs.push_back(version_alone && !name.empty() ? fmt::format("{}@{}", name, word) : word);
    if (const auto at = word.find('@'); at != std::string::npos) name = word.substr(0, at);
  }
  return specs;
}

Result<int> add(Context& context, const Arguments& arguments) {
  Json items = Json::array();
  for (const auto& spec : specs_from(arguments.positionals())) {
    CULPRIT_TRY(const auto engine, context.registry().add_engine(spec, context.progress_sink()));
    items.push_back(to_json(engine));
    if (!context.json()) context.out(fmt::format("{} is installed: library {:.12}\n", engine.spec(), engine.library_sha256));
  }
  if (context.json()) context.out_json(document("culprit-engines", {{"engines", std::move(items)}}));
  return 0;
}

Result<int> info(Context& context, const Arguments& arguments) {
  CULPRIT_TRY(const auto engine, context.registry().engine(arguments.positionals()[0]));
  const ScratchFolder scratch;
  CULPRIT_TRY(const auto process, DriverProcess::start({engine.argv, scratch.path() / "driver"}));
  CULPRIT_TRY(auto answer, process->request("hello", {{"protocol", 1}}, kHelloLimit));
  auto hello = answer.contains("hello") ? Json(answer.at("hello")) : std::move(answer);
  hello.erase("id");
  hello.erase("event");
  auto all = to_json(engine);
  all["hello"] = std::move(hello);
  if (context.json())
    context.out_json(document("culprit-engine", std::move(all)));
  else
    context.out(indented_text(all));
  return 0;
}

}  // namespace

const Verb kEngineList = {
    .name = "engine list",
    .summary = "list the installed engines",
    .details = "ref is built in: it runs the decode graph in float64 semantics and can be given any fault of the catalogue.",
    .options = {},
    .positionals = {},
    .run = list};
const Verb kEngineAdd = {
    .name = "engine add",
    .summary = "fetch engine releases as packages and build their drivers",
    .details =
        "A SPEC is NAME@VERSION; a version alone is one more of the engine before it: mlx@0.29.4 0.32.4. Several versions lie side by "
        "side. What is there already, as it was installed, is left alone.",
    .options = {},
    .positionals = {{.name = "SPEC", .repeated = true}},
    .run = add};
const Verb kEngineInfo = {.name = "engine info",
                          .summary = "show what an engine says of itself: switches, ops, declared arithmetic",
                          .details = "",
                          .options = {},
                          .positionals = {{.name = "SPEC"}},
                          .run = info};

}  // namespace culprit::cli
