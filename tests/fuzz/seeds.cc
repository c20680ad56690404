// Writes the inputs that fuzzing starts from: seeds FOLDER makes FOLDER/TARGET/*.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "decode/architecture.h"
#include "decode/facts_json.h"
#include "decode/model.h"
#include "decode/model_weights.h"
#include "engine/plan.h"
#include "format/ggml_blocks.h"
#include "format/gguf_builder.h"
#include "format/npy.h"
#include "format/safetensors.h"
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

/// The smallest model of an architecture: a layer, a head, hidden 2.
GgufBuilder smallest(const Architecture& architecture) {
  GgufBuilder builder;
  builder.text("general.architecture", architecture.name);
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", architecture.name, name); };
  const std::pair<const char*, std::uint32_t> counts[] = {{"block_count", 1},
                                                          {"embedding_length", 2},
                                                          {"feed_forward_length", 3},
                                                          {"attention.head_count", 1},
                                                          {"attention.head_count_kv", 1},
                                                          {"attention.key_length", 2},
                                                          {"attention.value_length", 2},
                                                          {"rope.dimension_count", 2},
                                                          {"attention.sliding_window", 4},
                                                          {"context_length", 8}};
  for (const auto& [name, count] : counts)
    if (architecture.tiny().window > 0 || std::string_view(name) != "attention.sliding_window") builder.u32(key(name), count);
  builder.f32(key("attention.layer_norm_rms_epsilon"), 1e-6f).f32(key("rope.freq_base"), 1e4f);
  builder.text(key("rope.scaling.type"), "linear").f32(key("rope.scaling.factor"), 4);
  Facts facts = architecture.tiny();
  facts.layers = facts.heads = facts.kv_heads = 1;
  facts.hidden = facts.head_channels = facts.rope.dims = 2;
  facts.mlp_hidden = facts.vocabulary = 3;
  for (const auto& spec : model_weights(Graph(facts))) {
    const auto bytes = static_cast<std::size_t>(element_count(spec.shape)) * 4;
    builder.tensor(spec.gguf, {spec.shape.rbegin(), spec.shape.rend()}, 0, std::string(bytes, '\1'));
  }
  return builder;
}

Result<void> write_model(const fs::path& folder) {
  for (const auto* architecture : architectures())
    if (architecture->read_gguf != nullptr)
      CULPRIT_CHECK(write_file_whole(folder / std::string(architecture->name), smallest(*architecture).bytes()));
  const float factors[] = {1};
  auto scaled = smallest(*find_architecture("llama"));
  scaled.tensor("rope_freqs.weight", {1}, 0, {reinterpret_cast<const char*>(factors), sizeof factors});
  return write_file_whole(folder / "llama-factors", scaled.bytes());
}

/// As trace_folder_fuzz takes it apart.
Result<void> write_trace(const fs::path& folder, const fs::path& scratch) {
  std::error_code ignored;
  fs::remove_all(scratch, ignored);
  CULPRIT_TRY(auto writer, TraceWriter::create(scratch, {{"engine", "ref"}}));
  const double values[] = {1, 2, 3, 4};
  const auto tensor = Tensor::from_values(DType::f16, {1, 2, 2}, values);
  writer.add(0, "embed", tensor, {.sequence = {0}, .position = {{0, 1}}, .slot = {}});
  writer.add(0, "layers.0.q", tensor, {.sequence = {0}, .position = {{0, 1}}, .slot = {{0, 1}}}, "replaced", true);
  CULPRIT_CHECK(writer.end_step());
  CULPRIT_CHECK(writer.finish(Json::object()));
  std::string joined;
  for (const auto& name : {std::string(trace_format::kHeaderFile), std::string(trace_format::kTapsFile), trace_format::step_file_name(0)}) {
    CULPRIT_TRY(const auto text, read_file(scratch / name));
    joined += (joined.empty() ? "" : "\x1e") + text;
  }
  fs::remove_all(scratch, ignored);
  return write_file_whole(folder / "one-step", joined);
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

Result<void> write_record(const fs::path& folder) {
  TapRecord record;
  record.tap = "layers.0.q";
  record.layout = {.dtype = DType::bf16, .shape = {1, 4, 2}, .strides = {8, 2, 1}, .offset = 0, .storage_id = 0x1f};
  record.at = {.sequence = {0}, .position = {{5, 6, 7, 8}}, .slot = {{0, 1, 2, -1}}};
  record.hash = std::string(32, 'a');
  record.count = 8;
  record.file = "step-000000.safetensors";
  record.key = "layers.0.q";
  return write_file_whole(folder / "record", to_json(record).dump());
}

Result<void> write_plans(const fs::path& folder) {
  RunPlan plan;
  plan.sequences = {{1, 2, 3}, {4, 5, 6}};
  plan.sequence_ids = {1, 0};
  plan.chunks = {1, 2};
  plan.variants = {{"rope", "composed"}, {"rope.rank", "3"}};
  plan.capture_steps = {1};
  plan.interventions = {{.kind = Intervention::Kind::exact, .tap = "layers.0.*"},
                        {.kind = Intervention::Kind::variant, .tap = "**", .steps = {0, 1}, .variant = "composed"},
                        {.kind = Intervention::Kind::replace, .tap = "embed", .steps = {1}, .file = "values.safetensors"}};
  CULPRIT_TRY(const auto fault, FaultSpec::parse("F01:content=zero,tap=layers.0.q_rope"));
  plan.faults = {fault};
  CULPRIT_CHECK(write_file_whole(folder / "run", to_json(plan).dump()));
  RunPlan joining;
  joining.sequences = {{1, 2, 3, 4}, {5, 6}, {7, 8, 9}};
  joining.chunks = {1, 1, 1, 1, 1, 1};
  joining.active = {{0}, {0, 1}, {1, 0}, {2}, {2, 0}, {2}};
  joining.sync = Sync::async;
  joining.sync_taps = {"layers.0.*", "logits@2"};
  CULPRIT_CHECK(write_file_whole(folder / "joining", to_json(joining).dump()));
  RunPlan restored;
  restored.sequences = {{1, 2, 3, 4, 5}};
  restored.reuse = Reuse{.common = 2, .tokens = {{8, 9}}, .chunks = {3, 1}};
  restored.chunks = {1, 2};
  restored.drafts = {{.step = 3, .tokens = {{6, 7}}}};
  restored.restore_after = {0, 2};
  restored.sync = Sync::each_op;
  restored.sync_taps = {"**"};
  for (const auto* cache : {"quantized:bits=4,group=32", "rotating:size=5,keep=2", "sink_window:sink=1,window=4", "padded"}) {
    restored.cache = cache;
    restored.poison = !restored.poison;
    CULPRIT_CHECK(write_file_whole(folder / fmt::format("restored-{}", std::string(cache, 3)), to_json(restored).dump()));
  }
  CULPRIT_CHECK(write_file_whole(folder / "load", to_json(LoadPlan{.model = "a.gguf", .dtype = DType::bf16}).dump()));
  for (const auto* architecture : architectures())
    CULPRIT_CHECK(write_file_whole(folder / fmt::format("facts-{}", architecture->name), to_json(architecture->tiny()).dump()));
  return {};
}

/// Of every architecture, and inside of the config of a model of text and images.
Result<void> write_configs(const fs::path& folder) {
  for (const auto* architecture : architectures()) {
    const auto config = architecture->write_hf(architecture->tiny());
    CULPRIT_CHECK(write_file_whole(folder / std::string(architecture->name), config.dump()));
    if (architecture->hf_wrapper.empty()) continue;
    const Json wrapper = {{"model_type", architecture->hf_wrapper}, {"text_config", config}, {"vision_config", {{"hidden_size", 8}}}};
    CULPRIT_CHECK(write_file_whole(folder / fmt::format("{}-wrapped", architecture->name), wrapper.dump()));
  }
  return {};
}

Result<void> write_all(const fs::path& root) {
  for (const auto* target : {"gguf", "model", "config", "safetensors", "npy", "trace", "trace_folder", "plan"})
    fs::create_directories(root / target);
  CULPRIT_CHECK(write_gguf(root / "gguf"));
  CULPRIT_CHECK(write_tensors(root / "safetensors", root / "npy"));
  CULPRIT_CHECK(write_model(root / "model"));
  CULPRIT_CHECK(write_configs(root / "config"));
  CULPRIT_CHECK(write_record(root / "trace"));
  CULPRIT_CHECK(write_trace(root / "trace_folder", root / "scratch"));
  return write_plans(root / "plan");
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto written = write_all(argv[1]);
  if (!written) std::fprintf(stderr, "%s\n", to_string(written.error()).c_str());
  return written ? 0 : 1;
}
