#include "mlx_hello.h"

#include <dlfcn.h>
#include <mlx/mlx.h>

#include <cstdlib>
#include <filesystem>

#include "base/hash.h"
#include "decode/graph.h"
#include "mlx_ops.h"

namespace culprit::mlx_engine {
namespace {

// Environment variables that MLX reads once per process, with its default where that is one value on every device.
struct Switch {
  const char* name;
  const char* default_value;
};
constexpr Switch kSwitches[] = {
    {"MLX_ENABLE_TF32", "1"},       {"MLX_CUDA_USE_CUDNN_SDPA", "1"},    {"MLX_USE_CUDA_GRAPHS", "1"},
    {"MLX_SDPA_BLOCKS", nullptr},   {"MLX_MAX_OPS_PER_BUFFER", nullptr}, {"MLX_MAX_MB_PER_BUFFER", nullptr},
    {"MLX_BFS_MAX_WIDTH", nullptr}, {"MLX_DISABLE_COMPILE", nullptr},    {"MLX_METAL_GPU_ARCH", nullptr},
};

// The file that the symbol of a function of MLX lies in: what was loaded, not what was meant to be.
Result<std::filesystem::path> loaded_library() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&mx::version), &info) == 0 || info.dli_fname == nullptr)
    return fail("engine-error", "the loaded libmlx cannot be found");
  std::error_code error;
  auto path = std::filesystem::canonical(info.dli_fname, error);
  if (error) return fail("engine-error", error.message(), info.dli_fname);
  return path;
}

}  // namespace

Result<Json> describe() {
  CULPRIT_TRY(const auto library, loaded_library());
  CULPRIT_TRY(const auto hash, sha256_file(library));
  Json hello = {{"engine", "mlx"}, {"version", mx::version()}, {"library", library.string()}, {"library_sha256", hash}};
  hello["device"] = mx::default_device() == mx::Device(mx::Device::cpu) ? "cpu" : "gpu";
  hello["parallel_runs"] = hello["device"] == "cpu";  // MLX keeps one core busy there
  hello["switches"] = Json::object();
  for (const auto& item : kSwitches) {
    const char* value = std::getenv(item.name);
    if (value == nullptr) value = item.default_value;
    hello["switches"][item.name] = value == nullptr ? Json() : Json(value);  // null: MLX's own choice
  }
  hello["dtypes"] = {"f32", "f16", "bf16"};
  hello["ops"] = Json::object();
  for (const auto& variant : op_variants()) {
    auto& op = hello["ops"][std::string(name_of(variant.op))];
    op["variants"].push_back(variant.name);
    op["arithmetic"][variant.name] = {{"accumulate", variant.accumulate}};
  }
  hello["syncs"] = {"lazy", "each_op", "each_layer", "async"};
  return hello;
}

}  // namespace culprit::mlx_engine
