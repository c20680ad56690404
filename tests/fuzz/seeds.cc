// Writes the inputs that fuzzing starts from: seeds FOLDER makes FOLDER/TARGET/*.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "decode/architecture.h"
#include "decode/facts_json.h"
#include "decode/hf_folder.h"
#include "decode/model.h"
#include "decode/model_weights.h"
#include "engine/plan.h"
#include "format/ggml_blocks.h"
#include "format/gguf_builder.h"
#include "format/npy.h"
#include "format/safetensors.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/smallest.h"
#include "trace/format.h"
#include "trace/trace.h"

using namespace culprit;
namespace fs = std::filesystem;

namespace {
Result<void> write_gguf(const fs::path& folder) {
  GgufBuilder every;
  every.text("general.architecture", "llama").u32("llama.block_count", 1).f32("llama.rope.freq_base", 1e4f);
  every.entry("t.flags", 9, raw<std::uint32_t>(7) + raw<std::uint64_t>(2) + std::string("\1\0", 2));
  every.entry("t.texts", 9, raw<std::uint32_t>(8) + raw<std::uint64_t>(2) + raw_text("a") + raw_text(""));
  for (std::uint32_t number = 0; number < 31; ++number) {
    const auto* type = find_ggml_type(number);
    if (type == nullptr) continue;
    const auto elements = static_cast<std::uint64_t>(type->block_elements);
    std::string block;
    for (std::int64_t i = 0; i < 2 * type->block_bytes; ++i) block += static_cast<char>(i * 37 + number);
    GgufBuilder one;
    one.tensor("t", {elements, 2}, number, block);
    CULPRIT_CHECK(write_file_whole(folder / type->name, one.bytes()));
    every.tensor(type->name, {elements, 2}, number, block);
  }
  CULPRIT_CHECK(write_file_whole(folder / "every", every.bytes()));
  for (const auto alignment : {1, 8})
    CULPRIT_CHECK(
        write_file_whole(folder / fmt::format("aligned-{}", alignment),
                         GgufBuilder(2, static_cast<std::uint64_t>(alignment)).tensor("t", {3, 2}, 1, std::string(12, '\1')).bytes()));
  return {};
}

/// The smallest model of an architecture that GGUF files have.
GgufBuilder gguf_model(const Architecture& architecture) {
  const auto facts = fuzz::smallest_facts(architecture);
  const auto name = std::string(architecture.name);
  GgufBuilder builder;
  builder.text("general.architecture", name);
  const std::pair<const char*, int> counts[] = {{"block_count", facts.layers},
                                                {"embedding_length", facts.hidden},
                                                {"feed_forward_length", facts.mlp_hidden},
                                                {"attention.head_count", facts.heads},
                                                {"attention.head_count_kv", facts.kv_heads},
                                                {"attention.key_length", facts.head_channels},
                                                {"rope.dimension_count", facts.rope.dims},
                                                {"context_length", 8}};
  for (const auto& [key, count] : counts) builder.u32(name + "." + key, static_cast<std::uint32_t>(count));
  builder.f32(name + ".attention.layer_norm_rms_epsilon", 1e-6f).f32(name + ".rope.freq_base", 1e4f);
  builder.text(name + ".rope.scaling.type", "linear").f32(name + ".rope.scaling.factor", 4);
  if (facts.window > 0) builder.u32(name + ".attention.sliding_window", static_cast<std::uint32_t>(facts.window));
  for (const auto& spec : model_weights(Graph(facts))) {
    const auto bytes = static_cast<std::size_t>(element_count(spec.shape)) * 4;
    builder.tensor(spec.gguf, {spec.shape.rbegin(), spec.shape.rend()}, 0, std::string(bytes, '\1'));
  }
  return builder;
}

Result<void> write_models(const fs::path& folder) {
  for (const auto* architecture : architectures())
    if (architecture->read_gguf != nullptr)
      CULPRIT_CHECK(write_file_whole(folder / std::string(architecture->name), gguf_model(*architecture).bytes()));
  const float factors[] = {1, 4};
  const std::string bytes(reinterpret_cast<const char*>(factors), sizeof factors);
  return write_file_whole(folder / "llama-factors", gguf_model(kLlama).tensor("rope_freqs.weight", {2}, 0, bytes).bytes());
}

/// Tensors for the config of a llama, all zero: of f16, or packed as MLX does it where they are matrices inside of layers.
Result<std::string> zero_tensors(const Facts& facts, bool packed, const fs::path& scratch) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& spec : model_weights(Graph(facts))) {
    const auto stem = spec.hf.substr(0, spec.hf.rfind('.'));
    if (!packed || spec.shape.size() != 2 || stem.ends_with("embed_tokens") || stem.ends_with("lm_head")) {
      tensors.emplace_back(spec.hf, Tensor::zeros(DType::f16, spec.shape));
      continue;
    }
    tensors.emplace_back(stem + ".weight", Tensor::zeros(DType::u32, {spec.shape[0], spec.shape[1] / 8}));
    for (const auto* part : {".scales", ".biases"})
      tensors.emplace_back(stem + part, Tensor::zeros(DType::f16, {spec.shape[0], spec.shape[1] / 32}));
  }
  const auto file = scratch / "tensors";
  CULPRIT_CHECK(write_safetensors(file, tensors));
  return read_file(file);
}

/// A config with its tensors, one with an index, and one with packed weights, whose rows are of 32 at least.
Result<void> write_configs_with_tensors(const fs::path& folder, const fs::path& scratch) {
  auto facts = fuzz::smallest_facts(kLlama);
  auto config = kLlama.write_hf(facts);
  CULPRIT_TRY(const auto tensors, zero_tensors(facts, false, scratch));
  CULPRIT_CHECK(write_file_whole(folder / "tensors", config.dump() + fuzz::kSeparator + tensors));
  Json index = {{"metadata", {{"total_size", tensors.size()}}}};
  for (const auto& spec : model_weights(Graph(facts))) index["weight_map"][spec.hf] = kHfTensorsFile;
  CULPRIT_CHECK(write_file_whole(folder / "index", config.dump() + fuzz::kSeparator + fuzz::kSeparator + index.dump()));

  facts.hidden = facts.mlp_hidden = facts.head_channels = facts.rope.dims = 32;
  facts.vocabulary = 3;
  facts.heads = 1;
  config = kLlama.write_hf(facts);
  config["quantization"] = {{"bits", 4}, {"group_size", 32}};
  CULPRIT_TRY(const auto packed, zero_tensors(facts, true, scratch));
  return write_file_whole(folder / "packed", config.dump() + fuzz::kSeparator + packed);
}

/// As config_fuzz takes it apart.
Result<void> write_configs(const fs::path& folder, const fs::path& scratch) {
  for (const auto* architecture : architectures()) {
    const auto name = std::string(architecture->name);
    const auto facts = fuzz::smallest_facts(*architecture);
    const auto config = architecture->write_hf(facts);
    CULPRIT_CHECK(write_file_whole(folder / name, config.dump()));
    const Json own = {{"format", "culprit-model"}, {"version", 1}, {"facts", to_json(facts)}};
    CULPRIT_CHECK(write_file_whole(folder / (name + "-own"), own.dump()));
    if (architecture->hf_wrapper.empty()) continue;
    const Json around = {{"model_type", architecture->hf_wrapper}, {"text_config", config}, {"tie_word_embeddings", facts.tied_head}};
    CULPRIT_CHECK(write_file_whole(folder / (name + "-wrapped"), around.dump()));
  }
  return write_configs_with_tensors(folder, scratch);
}

/// As trace_folder_fuzz takes it apart. `taps` are of one step.
Result<void> write_trace(const fs::path& file, const fs::path& scratch, const std::vector<std::pair<std::string, Tensor>>& taps,
                         const Coordinates& at) {
  std::error_code ignored;
  const auto folder = scratch / "trace";
  fs::remove_all(folder, ignored);
  CULPRIT_TRY(auto writer, TraceWriter::create(folder, {{"engine", "ref"}}));
  for (const auto& [tap, tensor] : taps) writer.add(0, tap, tensor, at, tap == "embed" ? "replaced" : "", tap == "layers.0.q");
  CULPRIT_CHECK(writer.end_step());
  CULPRIT_CHECK(writer.finish(Json::object()));
  std::string joined;
  for (const auto& name : {std::string(trace_format::kHeaderFile), std::string(trace_format::kTapsFile), trace_format::step_file_name(0)}) {
    CULPRIT_TRY(const auto text, read_file(folder / name));
    joined += (joined.empty() ? std::string() : std::string(1, fuzz::kSeparator)) + text;
  }
  return write_file_whole(file, joined);
}

Result<void> write_traces(const fs::path& folder, const fs::path& scratch) {
  const double values[] = {1, 2, 3, 4};
  const auto tensor = Tensor::from_values(DType::f16, {1, 2, 2}, values);
  const auto state = Tensor::from_values(DType::f32, {2, 1, 2, 1}, values);
  CULPRIT_CHECK(write_trace(folder / "one-step", scratch, {{"embed", tensor}, {"layers.0.q", tensor}},
                            {.sequence = {0}, .position = {{0, 1}}, .slot = {{0, 1}}}));
  // Rows that joined: padding before a row's first token, and states of layers without a cache.
  return write_trace(folder / "recurrent", scratch,
                     {{"layers.0.delta_state", state}, {"layers.0.conv", state}, {"layers.1.k_cache", state}},
                     {.sequence = {3, 1}, .position = {{7, 8}, {-1, 0}}, .slot = {{5, 6, 7, 8}, {-1, -1, -1, 0}}});
}

Result<void> write_tensors(const fs::path& safetensors, const fs::path& npy) {
  const double values[] = {1, 0, -2, 3, 0.5, 6};
  std::vector<std::pair<std::string, Tensor>> all;
  for (const auto dtype :
       {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u32, DType::u8, DType::boolean}) {
    all.emplace_back(name_of(dtype), Tensor::from_values(dtype, {2, 3}, values));
    CULPRIT_CHECK(write_npy(npy / name_of(dtype), all.back().second));
  }
  const std::string fortran = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }      \n";
  CULPRIT_CHECK(write_file_whole(
      npy / "fortran", "\x93NUMPY\2" + raw<char>(0) + raw(static_cast<std::uint32_t>(fortran.size())) + fortran + std::string(24, '\1')));
  return write_safetensors(safetensors / "every", all, {{"format", "pt"}});
}

Result<void> write_records(const fs::path& folder) {
  TapRecord record;
  record.tap = "layers.0.q";
  record.layout = {.dtype = DType::bf16, .shape = {1, 4, 2}, .strides = {8, 2, 1}, .offset = 0, .storage_id = 0x1f};
  record.at = {.sequence = {0}, .position = {{5, 6, 7, 8}}, .slot = {{0, 1, 2, -1}}};
  record.hash = std::string(32, 'a');
  record.count = 8;
  record.file = "step-000000.safetensors";
  record.key = "layers.0.q";
  CULPRIT_CHECK(write_file_whole(folder / "record", to_json(record).dump()));
  record.tap = record.key = "layers.2.delta_state";
  record.at = {.sequence = {4, 0}, .position = {{0, 1}, {-2, -1}}, .slot = {{}, {}}};
  record.note = "fault:F01";
  return write_file_whole(folder / "recurrent", to_json(record).dump());
}

RunPlan two_rows() {
  RunPlan plan;
  plan.sequences = {{1, 2, 3}, {4, 0, 1}};
  plan.chunks = {2, 1};
  return plan;
}

/// Each thing that a plan can say, by name.
Result<std::vector<std::pair<std::string, RunPlan>>> run_plans() {
  std::vector<std::pair<std::string, RunPlan>> plans;
  const auto add = [&](std::string name) -> RunPlan& { return plans.emplace_back(std::move(name), two_rows()).second; };
  auto& run = add("run");
  run.sequence_ids = {1, 0};
  run.position_base = 3;
  run.variants = {{"rope", "composed"}, {"rope.rank", "3"}};
  run.capture_steps = {1};
  run.interventions = {{.kind = Intervention::Kind::exact, .tap = "layers.0.*"},
                       {.kind = Intervention::Kind::variant, .tap = "layers.0.q_rope", .steps = {0, 1}, .variant = "composed"},
                       {.kind = Intervention::Kind::replace, .tap = "embed", .steps = {1}, .file = "values"}};
  CULPRIT_TRY(const auto fault, FaultSpec::parse("F01:content=zero,tap=layers.0.q_rope"));
  run.faults = {fault};
  auto& reprefill = add("reprefill");
  reprefill.reprefill = true;
  reprefill.hash_only = true;
  auto& padded = add("padded-rows");
  padded.sequences[1] = {2};
  padded.cache = "padded";
  padded.poison = true;
  auto& active = add("active");
  active.sequences = {{1, 2, 3}, {4, 0}};
  active.chunks = {1, 1, 1};
  active.active = {{0}, {1, 0}, {0, 1}};
  auto& drafts = add("drafts");
  drafts.drafts = {{.step = 0, .tokens = {{3}, {4}}}, {.step = 1, .tokens = {{1, 2}, {2, 1}}}};
  auto& reuse = add("reuse");
  reuse.reuse = Reuse{.common = 1, .tokens = {{4, 4}, {3, 3}}, .chunks = {2, 1}};
  reuse.chunks = {1, 1};
  auto& restore = add("restore");
  restore.restore_after = {0};
  auto& sync = add("sync");
  sync.sync = Sync::async;
  sync.sync_taps = {"layers.0.*", "embed@1"};
  for (const auto* cache : {"rotating:size=2,keep=1", "sink_window:sink=1,window=1", "quantized:bits=4,group=64", "padded"})
    add("cache-" + std::string(cache).substr(0, 4)).cache = cache;
  return plans;
}

Result<void> write_plans(const fs::path& folder) {
  CULPRIT_TRY(const auto plans, run_plans());
  for (const auto& [name, plan] : plans) CULPRIT_CHECK(write_file_whole(folder / name, to_json(plan).dump()));
  CULPRIT_CHECK(write_file_whole(folder / "load", to_json(LoadPlan{.model = "a.gguf", .dtype = DType::bf16}).dump()));
  for (const auto* architecture : architectures())
    CULPRIT_CHECK(
        write_file_whole(folder / ("facts-" + std::string(architecture->name)), to_json(fuzz::smallest_facts(*architecture)).dump()));
  return {};
}

std::string request(int id, const char* action, const Json& fields) {
  Json json = {{"id", id}, {"do", action}};
  json.update(fields);
  return json.dump() + "\n";
}

/// An op on dense operands of these shapes, of the file of that number (protocol_fuzz.cc).
std::string op_request(Op op, const char* file, const std::vector<std::pair<std::string, Shape>>& shapes,
                       const Json& fields = Json::object()) {
  Json json = {{"op", name_of(op)}, {"facts", to_json(fuzz::smallest_facts(kGemma3))}, {"dtype", "f32"}, {"file", file}, {"out", "o"}};
  for (const auto& [key, shape] : shapes)
    json["layouts"][key] = {{"shape", shape}, {"strides", Tensor::zeros(DType::f32, shape).layout().strides}};
  json.update(fields);
  return request(1, "op", json);
}

std::vector<std::pair<Op, std::string>> op_requests() {
  const Shape x = {2, 3, 4}, heads = {2, 2, 2, 4};
  const auto one = [&](Op op, const Shape& shape, const Json& fields = Json::object()) {
    return std::pair(op, op_request(op, "0", {{"input.0", shape}}, fields));
  };
  const auto two = [&](Op op, const Shape& first, const Shape& second, const Json& fields = Json::object()) {
    return std::pair(op, op_request(op, "1", {{"input.0", first}, {"input.1", second}}, fields));
  };
  std::vector<std::pair<Op, std::string>> all = {one(Op::scale, x, {{"factor", 2.5}}),
                                                 one(Op::softcap, x, {{"factor", 3}}),
                                                 one(Op::rope, heads, {{"offset", {5}}, {"rank", 3}}),
                                                 one(Op::rope, heads, {{"offset", {5, 0}}, {"rope_local", true}}),
                                                 one(Op::slice, x, {{"begin", 1}, {"channels", 2}, {"heads_out", 2}}),
                                                 one(Op::sigmoid, x),
                                                 one(Op::silu, x),
                                                 one(Op::l2_norm, x, {{"factor", 1}}),
                                                 one(Op::route, x, {{"experts", 2}, {"normalised", true}}),
                                                 one(Op::select_head, heads, {{"head", 1}}),
                                                 one(Op::cache_write, heads),
                                                 two(Op::cache_write, heads, heads),
                                                 two(Op::swiglu, x, x, {{"precise", true}}),
                                                 two(Op::geglu, x, x, {{"faults", {"F01:content=zero"}}}),
                                                 two(Op::add, x, x),
                                                 two(Op::multiply, x, x),
                                                 two(Op::expert_sum, {1, 2, 3, 4}, {1, 3, 4}, {{"experts", 2}}),
                                                 two(Op::delta_out, heads, heads)};
  all.emplace_back(Op::rms_norm, op_request(Op::rms_norm, "5", {{"input.0", x}, {"weight", {4}}}, {{"unit_offset", true}}));
  all.emplace_back(Op::linear, op_request(Op::linear, "6", {{"input.0", x}, {"weight", {4, 4}}, {"bias", {4}}}, {{"heads_out", 2}}));
  all.emplace_back(Op::delta_decay, op_request(Op::delta_decay, "6", {{"input.0", x}, {"weight", {4}}, {"bias", {4}}}));
  all.emplace_back(Op::causal_conv, op_request(Op::causal_conv, "5", {{"input.0", {1, 1, 4, 4}}, {"weight", {4, 2}}}));
  all.emplace_back(Op::embedding, op_request(Op::embedding, "8", {{"weight", {5, 4}}}, {{"tokens", {{1, 2}, {3, 4}}}}));
  all.emplace_back(Op::expert_linear,
                   op_request(Op::expert_linear, "7", {{"input.0", x}, {"input.1", {2, 3, 2}}, {"weight", {2, 4, 4}}}, {{"experts", 2}}));
  all.emplace_back(
      Op::sdpa, op_request(Op::sdpa, "2", {{"input.0", heads}, {"input.1", heads}, {"input.2", heads}}, {{"causal", true}, {"window", 1}}));
  all.emplace_back(Op::delta_state, op_request(Op::delta_state, "3",
                                               {{"input.0", heads}, {"input.1", {2, 2, 2}}, {"input.2", {2, 2, 2}}, {"input.3", heads}}));
  return all;
}

/// As protocol_fuzz reads them: a model by the number of its architecture, operands by the number of their file.
Result<void> write_requests(const fs::path& folder) {
  CULPRIT_TRY(const auto plans, run_plans());
  const auto load = [](std::size_t model, const char* dtype) {
    return request(1, "load", {{"plan", {{"model", std::to_string(model)}, {"dtype", dtype}}}});
  };
  const auto wide = architectures().size();  // the model whose heads have room for a quantised cache's groups
  const auto run = [](const RunPlan& plan) { return request(2, "run", {{"plan", to_json(plan)}, {"trace", "t"}}); };
  CULPRIT_CHECK(write_file_whole(folder / "hello", request(1, "hello", {{"protocol", 1}}) + request(2, "stop", Json::object())));
  CULPRIT_CHECK(write_file_whole(folder / "weights",
                                 load(0, "bf16") + request(2, "weights", {{"names", {"w.*"}}, {"values", true}, {"folder", "w"}})));
  for (const auto& [name, plan] : plans)
    CULPRIT_CHECK(write_file_whole(folder / ("plan-" + name), load(plan.cache.starts_with("quantized") ? wide : 0, "f32") + run(plan)));
  for (std::size_t model = 0; model < architectures().size(); ++model)
    CULPRIT_CHECK(write_file_whole(folder / ("model-" + std::string(architectures()[model]->name)), load(model, "f16") + run(two_rows())));
  int number = 0;
  for (const auto& [op, line] : op_requests())
    CULPRIT_CHECK(write_file_whole(folder / fmt::format("op-{}-{}", name_of(op), number++), line));
  return {};
}

Result<void> write_all(const fs::path& root) {
  const TestDir scratch;
  for (const auto* target : {"gguf", "model", "config", "safetensors", "npy", "trace", "trace_folder", "plan", "protocol"})
    fs::create_directories(root / target);
  CULPRIT_CHECK(write_gguf(root / "gguf"));
  CULPRIT_CHECK(write_tensors(root / "safetensors", root / "npy"));
  CULPRIT_CHECK(write_models(root / "model"));
  CULPRIT_CHECK(write_configs(root / "config", scratch.path()));
  CULPRIT_CHECK(write_records(root / "trace"));
  CULPRIT_CHECK(write_traces(root / "trace_folder", scratch.path()));
  CULPRIT_CHECK(write_requests(root / "protocol"));
  return write_plans(root / "plan");
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto written = write_all(argv[1]);
  if (!written) std::fprintf(stderr, "%s\n", to_string(written.error()).c_str());
  return written ? 0 : 1;
}
