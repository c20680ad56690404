#include "engine/registry.h"

#include <gtest/gtest.h>

#include <future>
#include <optional>

#include "base/file.h"
#include "base/hash.h"
#include "base/test_dir.h"
#include "base/version.h"
#include "engine/driver_build.h"
#include "engine/installed.h"
#include "engine/package.h"

namespace culprit {
namespace {
namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  ASSERT_TRUE(write_file_whole(path, text));
}

/// A home with sources and a build tree in which mlx@1.2.3 was "installed": small files with a true record.
class RegistryTest : public testing::Test {
 protected:
  void SetUp() override {
    write(root_ / "source/engines/mlx/main.cc", "int main() {}\n");
    write(root_ / "build/libculprit_kit.a", "archive");
    write(root_ / "build/culprit-archives.txt", (root_ / "build/libculprit_kit.a").string() + "\n");
    write(root_ / "bin/culprit-ref", "reference");
  }
  void install() {
    const auto& known = *known_engine("mlx");
    EngineRecord record;
    record.name = "mlx";
    record.version = "1.2.3";
    record.wheels = {"mlx-1.2.3.whl 00"};
    record.library = "package/" + std::string(known.library);
    record.driver = "driver/" + std::string(known.driver);
    write(folder() / record.library, "library");
    write(folder() / record.driver, "driver");
    record.library_sha256 = sha256_file(folder() / record.library).value();
    record.driver_sha256 = sha256_file(folder() / record.driver).value();
    record.source_hash = source_hash({root_ / "source/engines/mlx", root_ / "build"}).value();
    ASSERT_TRUE(write_engine_record(folder(), record));
  }
  [[nodiscard]] fs::path folder() const { return root_ / "home/engines/mlx@1.2.3"; }
  [[nodiscard]] fs::path library() const { return folder() / "package" / known_engine("mlx")->library; }
  [[nodiscard]] Registry registry() const { return {root_ / "home", root_ / "source", root_ / "build", root_ / "bin"}; }
  [[nodiscard]] std::string error_of(const std::string& spec) const {
    const auto engine = registry().engine(spec);
    return engine ? "none" : engine.error().id;
  }

  TestDir root_;
};

TEST_F(RegistryTest, InstalledEngineIsFoundWithItsHashes) {
  install();
  const auto engine = registry().engine("mlx@1.2.3");
  ASSERT_TRUE(engine) << to_string(engine.error());
  EXPECT_EQ(engine->spec(), "mlx@1.2.3");
  EXPECT_EQ(engine->argv, std::vector<std::string>{(folder() / "driver/culprit-mlx").string()});
  EXPECT_EQ(engine->library_sha256, sha256_file(library()).value());
}

TEST_F(RegistryTest, AddingWhatIsThereFetchesNothing) {
  install();
  std::vector<std::string> lines;
  const auto engine = registry().add_engine("mlx@1.2.3", [&](const std::string& line) { lines.push_back(line); });
  ASSERT_TRUE(engine) << to_string(engine.error());
  EXPECT_TRUE(lines.empty());
}

TEST_F(RegistryTest, ReferenceIsBuiltIn) {
  const auto engine = registry().engine("ref");
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->spec(), "ref@" + std::string(version()));
  EXPECT_TRUE(registry().engine(engine->spec()));
  EXPECT_EQ(error_of("ref@0.0.0"), "engine-version");
  EXPECT_EQ(error_of("ref@"), "engine-version");
}

TEST_F(RegistryTest, UnknownEngineGetsTheNearestName) {
  const auto engine = registry().engine("mxl@0.29.4");
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().id, "engine-unknown");
  EXPECT_NE(engine.error().message.find("did you mean"), std::string::npos) << engine.error().message;
  EXPECT_EQ(registry().add_engine("pytorch@1.0", {}).error().id, "engine-unknown");
}

TEST_F(RegistryTest, SpecsWithoutAReleaseAreRefused) {
  for (const std::string spec :
       {"mlx", "mlx@", "mlx@latest", "mlx@../../x", "mlx@1.2.3/..", "mlx@1..2", "mlx@ 1", "mlx@1.2;x", "mlx@1@2"}) {
    EXPECT_EQ(error_of(spec), "engine-version") << spec;
    EXPECT_EQ(registry().add_engine(spec, {}).error().id, "engine-version") << spec;
  }
  EXPECT_FALSE(fs::exists(root_ / "home"));
}

TEST_F(RegistryTest, MissingEngineSaysHowToInstallIt) {
  const auto engine = registry().engine("mlx@1.2.4");
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().id, "engine-missing");
  EXPECT_NE(engine.error().message.find("culprit engine add mlx@1.2.4"), std::string::npos);
}

TEST_F(RegistryTest, ChangedLibraryIsAnErrorOfItsOwn) {
  install();
  write(library(), "another library");
  EXPECT_EQ(error_of("mlx@1.2.3"), "library-changed");
  fs::remove(library());
  EXPECT_EQ(error_of("mlx@1.2.3"), "engine-missing");
}

TEST_F(RegistryTest, ChangedDriverIsNotUsed) {
  install();
  write(folder() / "driver/culprit-mlx", "another driver");
  EXPECT_EQ(error_of("mlx@1.2.3"), "engine-missing");
}

TEST_F(RegistryTest, DriverOfOtherSourcesIsStale) {
  install();
  write(root_ / "build/libculprit_kit.a", "rebuilt archive");
  EXPECT_EQ(error_of("mlx@1.2.3"), "engine-missing");
  write(root_ / "build/libculprit_kit.a", "archive");
  EXPECT_EQ(error_of("mlx@1.2.3"), "none");
  write(root_ / "source/engines/mlx/main.cc", "int main() { return 1; }\n");
  EXPECT_EQ(error_of("mlx@1.2.3"), "engine-missing");
  fs::remove_all(root_ / "source");  // an installed culprit without sources uses what is there
  EXPECT_EQ(error_of("mlx@1.2.3"), "none");
}

TEST_F(RegistryTest, CorruptRecordIsReported) {
  install();
  const auto whole = read_file(folder() / "engine.json").value();
  for (const auto& text : {std::string("{"), std::string("[]"), whole.substr(0, whole.size() / 2), std::string("{\"schema\": 1}")}) {
    write(folder() / "engine.json", text);
    const auto engine = registry().engine("mlx@1.2.3");
    ASSERT_FALSE(engine) << text;
    EXPECT_EQ(engine.error().id, "engine-missing");
    EXPECT_NE(engine.error().message.find("record"), std::string::npos);
    EXPECT_EQ(registry().engines().size(), 1U);  // ref alone
  }
}

TEST_F(RegistryTest, RecordOfAnotherEngineIsNotTaken) {
  install();
  fs::rename(folder(), root_ / "home/engines/mlx@9.9.9");
  EXPECT_EQ(error_of("mlx@9.9.9"), "engine-missing");
  EXPECT_EQ(registry().engines().size(), 1U);
}

TEST_F(RegistryTest, ListsWhatIsInstalled) {
  install();
  write(root_ / "home/engines/.tmp-left/engine.json", "{}");
  const auto engines = registry().engines();
  ASSERT_EQ(engines.size(), 2U);
  EXPECT_EQ(engines[1].spec(), "mlx@1.2.3");
}

TEST_F(RegistryTest, FailedBuildLeavesWhatWasThereAndNothingElse) {
  install();
  write(root_ / "build/libculprit_kit.a", "rebuilt archive");  // stale; and source/engines/mlx has no CMakeLists.txt
  const auto before = read_file(folder() / "engine.json").value();
  const auto engine = registry().add_engine("mlx@1.2.3", {});
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().id, "engine-build") << to_string(engine.error());
  EXPECT_EQ(read_file(folder() / "engine.json").value(), before);
  for (const auto& entry : fs::directory_iterator(root_ / "home/engines")) EXPECT_EQ(entry.path(), folder());
}

TEST_F(RegistryTest, WithoutBuildTreeNothingCanBeAdded) {
  fs::remove_all(root_ / "build");
  EXPECT_EQ(registry().add_engine("mlx@1.2.3", {}).error().id, "engine-build");
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(RegistryTest, ModelsByPathOrName) {
  EXPECT_EQ(registry().model((root_ / "bin/culprit-ref").string()).value(), root_ / "bin/culprit-ref");
  const auto missing = registry().model("smollm2");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().id, "model-missing");
  EXPECT_NE(missing.error().message.find("culprit model get smollm2"), std::string::npos);
  EXPECT_NE(registry().model("smollm").error().message.find("did you mean smollm2"), std::string::npos);
  EXPECT_EQ(registry().get_model("nothing-like-it", {}).error().id, "model-missing");

  const auto folder = root_ / "home/models/smollm2";
  write(folder / "model.gguf", "weights");
  ASSERT_TRUE(write_model_record(folder, {"smollm2", "wheel 00", "model.gguf", "00"}));
  EXPECT_EQ(registry().model("smollm2").value(), folder / "model.gguf");
  EXPECT_EQ(registry().models(), std::vector<std::string>{"smollm2"});
}

TEST(JoinParts, InTheOrderGivenWhereverTheyLie) {
  const TestDir dir;
  write(dir / "in/b/x.part1", "second");
  write(dir / "in/a/data/x.part2", "");
  write(dir / "in/c/x.part0", "first ");
  write(dir / "in/c/y.part0", "another");
  const std::string_view parts[] = {"x.part0", "x.part1", "x.part2"};
  const auto joined = join_parts(dir / "in", parts, dir / "x");
  ASSERT_TRUE(joined) << to_string(joined.error());
  EXPECT_EQ(read_file(dir / "x").value(), "first second");
}

TEST(JoinParts, MissingOrDoublePartLeavesNothing) {
  const TestDir dir;
  write(dir / "in/x.part0", "first");
  write(dir / "in/x.part1", "second");
  write(dir / "in/again/x.part1", "second");
  for (const std::string_view second : {"x.part1", "x.part2"}) {
    const std::string_view parts[] = {"x.part0", second};
    const auto joined = join_parts(dir / "in", parts, dir / "x");
    ASSERT_FALSE(joined);
    EXPECT_EQ(joined.error().id, "package-fetch");
    EXPECT_NE(joined.error().message.find(second), std::string::npos) << joined.error().message;
    EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1);  // in/ alone
  }
  EXPECT_EQ(join_parts(dir / "absent", {}, dir / "x").error().id, "package-fetch");
}

TEST(KnownModels, EachHasAllThatGettingItNeeds) {
  for (const auto& model : known_models()) {
    EXPECT_EQ(known_model(model.name), &model);
    EXPECT_FALSE(model.packages.empty());
    EXPECT_FALSE(model.parts.empty());
    EXPECT_TRUE(is_package_version(std::string(model.version)));
    EXPECT_EQ(model.sha256.size(), 64u);
  }
}

TEST(Package, VersionSyntax) {
  for (const std::string good : {"0.32.4", "1", "1.0rc1", "2.1.post1", "2026.10.11549"}) EXPECT_TRUE(is_package_version(good)) << good;
  for (const std::string bad : {"", ".", "1.", "v1", "1.0-x", "1 ", "1.0\n", "==1", "1.2.3.4.5.6.7", "9999999999"})
    EXPECT_FALSE(is_package_version(bad)) << bad;
}

TEST(Package, ReadsTheVersionsThatPipLists) {
  EXPECT_EQ(versions_offered(
                "ERROR: Could not find a version that satisfies the requirement x==9 (from versions: 0.26.5, 0.29.0, 1.0rc1)\nERROR: No"),
            (std::vector<std::string>{"0.26.5", "0.29.0", "1.0rc1"}));
  EXPECT_TRUE(versions_offered("(from versions: none)").empty());
  EXPECT_TRUE(versions_offered("(from versions: 1.0").empty());
  EXPECT_TRUE(versions_offered("Could not fetch URL").empty());
}

TEST(HomeLock, SecondOneWaits) {
  TestDir home;
  std::promise<void> waiting;
  std::optional first = HomeLock::take(home.path(), [] { FAIL() << "nobody holds it"; });
  ASSERT_TRUE(*first);
  auto second = std::async(std::launch::async, [&] { return HomeLock::take(home.path(), [&] { waiting.set_value(); }).has_value(); });
  waiting.get_future().wait();
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  first.reset();
  EXPECT_TRUE(second.get());
}

}  // namespace
}  // namespace culprit
