// The protocol's server side: the input's lines are requests to the reference engine, in this process. Their paths are replaced by paths in a
// folder of its own, so that a request reaches models and operands that are there and writes nowhere else. Each line must be answered once.
#include <algorithm>

#include "base/error_ids.h"
#include "base/fields.h"
#include "base/file.h"
#include "base/json.h"
#include "decode/architecture.h"
#include "decode/model.h"
#include "engines/ref/ref_backend.h"
#include "format/safetensors.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/smallest.h"

using namespace culprit;

namespace {
using Operands = std::vector<std::pair<std::string, Tensor>>;

/// Files of operands by number: so many inputs, a weight, a bias. A request's `layouts` make shapes of their elements.
struct OperandFile {
  int inputs;
  bool weight = false, bias = false;
  DType dtype = DType::f32;
};
constexpr OperandFile kOperandFiles[] = {
    {1}, {2}, {3}, {4}, {5}, {1, true}, {1, true, true}, {2, true}, {0, true}, {2, false, false, DType::bf16}};

Tensor counted(const Shape& shape, DType dtype) {
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.25 * static_cast<double>((i * 37) % 11) - 1;
  return Tensor::from_values(dtype, shape, values);
}

Operands operands(const OperandFile& file) {
  const auto elements = counted({64}, file.dtype);
  Operands all;
  for (int i = 0; i < file.inputs; ++i) all.emplace_back("input." + std::to_string(i), elements);
  if (file.weight) all.emplace_back("weight", elements);
  if (file.bias) all.emplace_back("bias", elements);
  return all;
}

class Places {
 public:
  Places() {
    std::filesystem::create_directory(dir_ / "weights");
    fuzz::require(write_file_whole(program(), "").has_value());
    for (const auto& file : kOperandFiles)
      fuzz::require(write_safetensors(dir_ / numbered("operands", operand_files_++), operands(file)).has_value());
    const Operands values = {{"embed", counted({2, 1, 4}, DType::f32)}, {"layers.0.q@1", counted({2, 2, 1, 4}, DType::f32)}};
    fuzz::require(write_safetensors(dir_ / "values", values).has_value());
    for (const auto* architecture : architectures()) add_model(fuzz::smallest_facts(*architecture));
    auto wide = fuzz::smallest_facts(kLlama);  // a quantised cache has groups of 32 channels or more
    wide.heads = 1;
    wide.head_channels = wide.rope.dims = 64;
    add_model(wide);
  }
  [[nodiscard]] std::filesystem::path program() const { return dir_ / "culprit-ref"; }

  /// Which of the places a text means: its last character chooses.
  void replace(Json& request) const {
    replace(request, "trace", dir_ / "trace");
    replace(request, "folder", dir_ / "weights");
    replace(request, "out", dir_ / "out");
    replace(request, "file", dir_ / numbered("operands", chosen(request, "file", operand_files_)));
    const auto plan = request.find("plan");
    if (plan == request.end() || !plan->is_object()) return;
    replace(*plan, "model", dir_ / numbered("model", chosen(*plan, "model", models_)));
    const auto interventions = plan->find("interventions");
    if (interventions == plan->end() || !interventions->is_array()) return;
    for (auto& intervention : *interventions)
      if (intervention.is_object()) replace(intervention, "file", dir_ / "values");
  }
  void clean() const {
    std::error_code ignored;
    std::filesystem::remove_all(dir_ / "trace", ignored);
  }

 private:
  void add_model(const Facts& facts) {
    fuzz::require(write_random_model(dir_ / numbered("model", models_++), {.facts = facts}).has_value());
  }
  static std::string numbered(const char* name, int number) { return name + std::to_string(number); }
  static int chosen(const Json& object, const char* key, int count) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_string()) return 0;
    const auto& text = found->get_ref<const std::string&>();
    return text.empty() ? 0 : static_cast<unsigned char>(text.back() - '0') % count;
  }
  static void replace(Json& object, const char* key, const std::filesystem::path& path) {
    const auto found = object.find(key);
    if (found != object.end() && found->is_string() && !found->get_ref<const std::string&>().empty()) *found = path.string();
  }

  TestDir dir_;
  int models_ = 0, operand_files_ = 0;
};

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    lines.push_back(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(text.size(), lines.back().size() + 1));
  }
  return lines;
}

bool is_known(const std::string& id) {
  return std::ranges::any_of(error_ids(), [&](const ErrorId& known) { return known.id == id; });
}

/// One `result` or `error` for each request, of its id.
void check(const std::string& answers, const std::vector<std::int64_t>& ids) {
  std::size_t answered = 0;
  for (const auto line : lines_of(answers)) {
    const auto answer = parse_json(line);
    fuzz::require(answer && answer->is_object() && answered < ids.size() && answer->at("id") == ids[answered]);
    const auto& event = answer->at("event").get_ref<const std::string&>();
    if (event == "step" || event == "progress") continue;
    ++answered;
    if (event == "result") continue;
    const auto& id = answer->at("error").at("id").get_ref<const std::string&>();
    fuzz::require(event == "error" && is_known(id) && id != "internal" && id != "engine-error");
  }
  fuzz::require(answered == ids.size());
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Places places;
  static const fuzz::MemoryFile in, out;
  static ref::RefBackend backend(places.program());
  std::string requests;
  std::vector<std::int64_t> ids;
  for (const auto line : lines_of(fuzz::text_of(data, size))) {
    auto request = parse_json(line);
    if (request && request->is_object()) places.replace(*request);
    requests += request && request->is_object() ? request->dump(-1, ' ', false, Json::error_handler_t::replace) : std::string(line);
    requests += '\n';
    if (line.empty()) continue;
    auto& id = ids.emplace_back(0);
    if (!request || !request->is_object()) continue;
    const auto given = request->find("id"), action = request->find("do");
    const bool has_id = given != request->end() && read_json(*given, id);
    if (has_id && action != request->end() && *action == "stop") break;
  }
  places.clean();
  in.put(requests);
  out.put("");
  fuzz::require(kit::serve(backend, in.descriptor(), out.descriptor()) == 0);
  check(out.text(), ids);
  return 0;
}
