#include "base/file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/test_dir.h"

namespace culprit {
namespace {

std::string text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
std::size_t entries_in(const TestDir& dir) {
  const std::filesystem::directory_iterator entries(dir.path());
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

TEST(MappedFile, ShowsTheBytesOfTheFile) {
  const TestDir dir;
  ASSERT_TRUE(write_file_whole(dir / "a", std::string_view("x\0y", 3)));
  const auto file = MappedFile::open(dir / "a");
  ASSERT_TRUE(file);
  EXPECT_EQ(text_of((*file)->bytes()), std::string("x\0y", 3));
  EXPECT_EQ((*file)->path(), dir / "a");
}

TEST(MappedFile, OutlivesTheNameOfTheFile) {
  const TestDir dir;
  ASSERT_TRUE(write_file_whole(dir / "a", "first"));
  const auto file = MappedFile::open(dir / "a");
  ASSERT_TRUE(file);
  ASSERT_TRUE(write_file_whole(dir / "a", "other"));  // a rename, not a write into the mapped file
  EXPECT_EQ(text_of((*file)->bytes()), "first");
}

TEST(MappedFile, TakesAnEmptyFile) {
  const TestDir dir;
  ASSERT_TRUE(write_file_whole(dir / "empty", ""));
  const auto file = MappedFile::open(dir / "empty");
  ASSERT_TRUE(file);
  EXPECT_TRUE((*file)->bytes().empty());
}

TEST(MappedFile, NamesWhatCannotBeOpened) {
  const TestDir dir;
  for (const auto& path : {dir / "absent", dir.path()}) {
    const auto file = MappedFile::open(path);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().id, "file-missing");
    EXPECT_EQ(file.error().where, path.string());
  }
}

TEST(ReadFile, GivesBackWhatWasWritten) {
  const TestDir dir;
  std::string text(300'000, 'a');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7);
  ASSERT_TRUE(write_file_whole(dir / "a", text));
  EXPECT_EQ(read_file(dir / "a").value(), text);
  EXPECT_EQ(read_file(dir / "absent").error().id, "file-missing");
  EXPECT_EQ(read_file(dir.path()).error().id, "file-missing");
}

TEST(FileWriter, GathersAppendsOfAnySizeInOrder) {
  const TestDir dir;
  std::string expected;
  auto writer = FileWriter::create(dir / "a");
  ASSERT_TRUE(writer);
  for (std::size_t size : {0, 1, 65'535, 1, 65'536, 65'537, 10, 200'000, 3}) {
    const std::string part(size, static_cast<char>('a' + expected.size() % 26));
    ASSERT_TRUE(writer->append(part));
    expected += part;
  }
  ASSERT_TRUE(writer->commit());
  EXPECT_EQ(read_file(dir / "a").value(), expected);
  EXPECT_EQ(entries_in(dir), 1u);
}

TEST(FileWriter, LeavesTheOldFileWhenItIsGivenUp) {
  const TestDir dir;
  ASSERT_TRUE(write_file_whole(dir / "a", "old"));
  {
    auto writer = FileWriter::create(dir / "a");
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->append(std::string(100'000, 'n')));
    EXPECT_EQ(entries_in(dir), 2u);
  }
  EXPECT_EQ(read_file(dir / "a").value(), "old");
  EXPECT_EQ(entries_in(dir), 1u);
}

TEST(FileWriter, CannotCreateInAnAbsentFolder) {
  const TestDir dir;
  const auto result = write_file_whole(dir / "absent/a", "x");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().id, "file-write");
  EXPECT_NE(result.error().message.find(std::strerror(ENOENT)), std::string::npos) << result.error().message;
}

TEST(FileWriter, RemovesWhatItWroteWhenTheNameIsTaken) {
  const TestDir dir;
  std::filesystem::create_directory(dir / "a");
  const auto result = write_file_whole(dir / "a", "x");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().id, "file-write");
  EXPECT_FALSE(std::filesystem::exists(dir / "a.tmp"));
}

TEST(FileWriter, ReportsAFullDiskAndLeavesNothing) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  for (const std::size_t size : {10, 1'000'000}) {  // the buffered and the direct way
    const TestDir dir;
    ASSERT_TRUE(write_file_whole(dir / "a", "old"));
    std::filesystem::create_symlink("/dev/full", dir / "a.tmp");
    const auto result = write_file_whole(dir / "a", std::string(size, 'x'));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().id, "file-write");
    EXPECT_NE(result.error().message.find(std::strerror(ENOSPC)), std::string::npos) << result.error().message;
    EXPECT_EQ(read_file(dir / "a").value(), "old");
    EXPECT_EQ(entries_in(dir), 1u);
  }
}

struct GlobCase {
  const char* pattern;
  const char* text;
  bool matches;
};

TEST(GlobMatch, KeepsToItsTable) {
  const GlobCase cases[] = {
      {"", "", true},
      {"", "a", false},
      {"*", "", true},
      {"*", "logits", true},
      {"*", "layers.0", false},
      {"**", "layers.0.q", true},
      {"layers.*.q", "layers.12.q", true},
      {"layers.*.q", "layers.12.attn.q", false},
      {"layers.**.q", "layers.12.attn.q", true},
      {"layers.*.q", "layers.12.q_rope", false},
      {"layers.*.q*", "layers.12.q_rope", true},
      {"layers.?.q", "layers.1.q", true},
      {"layers.?.q", "layers.12.q", false},
      {"?", "", false},
      {"?", ".", true},
      {"w.*", "w.model", true},
      {"w.*", "w.model.embed", false},
      {"w.**", "w.model.embed", true},
      {"***", "a.b", true},
      {"a*b*c", "a_b_b_c", true},
      {"a*b*c", "a_b_b_cd", false},
      {"[q]", "q", false},
  };
  for (const auto& c : cases) EXPECT_EQ(glob_match(c.pattern, c.text), c.matches) << c.pattern << " on " << c.text;
}

TEST(GlobMatch, DoesNotBlowUpOnManyWildcards) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "**a";
  EXPECT_FALSE(glob_match(pattern, std::string(5'000, 'a') + "b"));
  EXPECT_TRUE(glob_match(pattern + "*", std::string(5'000, 'a') + "b"));
}

}  // namespace
}  // namespace culprit
