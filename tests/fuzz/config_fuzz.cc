// A model's folder: config.json as Hugging Face and MLX have it, or model.json, which has a field "format". An input may go on, behind a byte
// 0x1e each, with the tensors' file and model.safetensors.index.json. Without tensors a config that is accepted gets those that its facts
// ask for, all zero, so that it goes all the way.
#include "base/json.h"
#include "decode/architecture.h"
#include "decode/hf_folder.h"
#include "decode/model.h"
#include "decode/model_folder.h"
#include "decode/model_weights.h"
#include "tests/fuzz/fuzz.h"

using namespace culprit;

namespace {
constexpr int kLayersMax = 32;
constexpr std::size_t kTensorsMax = 1024;
constexpr double kBytesMax = 1 << 22;

struct Zeros {
  Json header = Json::object();
  double bytes = 0;

  /// False when it has become too much to be worth the time.
  bool add(const std::string& name, const Shape& shape) {
    double count = 1;
    for (const auto n : shape) count *= static_cast<double>(n);
    if (header.contains(name)) return true;
    if (header.size() >= kTensorsMax || bytes + 4 * count > kBytesMax) return false;
    const auto begin = static_cast<std::uint64_t>(bytes);
    bytes += 4 * count;
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, static_cast<std::uint64_t>(bytes)}}};
    return true;
  }
  void put(const fuzz::MemoryFile& file) const {
    const auto text = header.dump();
    const std::uint64_t length = text.size();
    const std::string start(reinterpret_cast<const char*>(&length), sizeof length);
    file.put(start + text, start.size() + text.size() + static_cast<std::size_t>(bytes));
  }
};

bool add_hf(Zeros& zeros, const WeightSpec& spec, const std::string& prefix) {
  const auto name = prefix + spec.hf;
  if (const auto hole = name.find('*'); hole != std::string::npos) {
    for (std::int64_t expert = 0; expert < spec.shape[0]; ++expert) {
      auto one = name;
      if (!zeros.add(one.replace(hole, 1, std::to_string(expert)), Shape(spec.shape.begin() + 1, spec.shape.end()))) return false;
    }
    return true;
  }
  auto shape = spec.hf_shape.empty() ? spec.shape : spec.hf_shape;
  if (spec.parts > 1) shape[1] *= spec.parts;
  return zeros.add(name, shape);
}

/// What the facts ask for; nothing when they are refused or ask for too much.
Zeros tensors_of(const Result<Facts>& facts, bool canonical, const std::string& prefix = {}) {
  if (!facts || !check_facts(*facts) || facts->layers > kLayersMax) return {};
  Zeros zeros;
  for (const auto& spec : model_weights(Graph(*facts)))
    if (canonical ? !zeros.add(spec.canonical, spec.shape) : !add_hf(zeros, spec, prefix)) return {};
  return zeros;
}

void check(const std::filesystem::path& folder) {
  const auto model = Model::open(folder);
  if (!model) {
    const auto& id = model.error().id;
    fuzz::require(id == "json-invalid" || id == "model-unsupported" || id == "safetensors-invalid" || id == "file-missing");
    fuzz::require(!model.error().where.empty());
    return;
  }
  for (const auto& name : model->weight_names()) {
    fuzz::require(model->canonical_name(model->checkpoint_name(name)) == name);
    const auto weight = model->weight(name);
    fuzz::require(weight.has_value());
    if (element_count(weight->shape()) <= 1 << 12) fuzz::require(weight->to_f32().shape() == weight->shape());
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFolder own{kModelFactsFile, kModelTensorsFile}, hf{kHfConfigFile, kHfTensorsFile},
      sharded{kHfConfigFile, kHfTensorsFile, kHfIndexFile};
  const auto parts = fuzz::parts_of(fuzz::text_of(data, size), 3);
  const auto json = parse_json(parts[0]);
  const bool is_own = json && json->is_object() && json->contains("format");
  const auto& folder = is_own ? own : parts.size() > 2 ? sharded : hf;
  folder.file(0).put(parts[0]);
  if (parts.size() > 1 && !parts[1].empty()) {
    folder.file(1).put(parts[1]);
  } else if (is_own) {
    tensors_of(read_model_facts(folder.path() / kModelFactsFile), true).put(folder.file(1));
  } else if (const auto config = read_hf_config(folder.path())) {
    tensors_of(read_hf_facts(*config), false, is_hf_wrapper(*config) ? "language_model." : "").put(folder.file(1));
  }
  if (parts.size() > 2 && !is_own) folder.file(2).put(parts[2]);
  check(folder.path());
  return 0;
}
