#include "engine/subprocess.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

#include "base/file.h"
#include "base/test_dir.h"

namespace culprit {
namespace {
constexpr std::chrono::seconds kLimit(30);

TEST(Subprocess, OutputAndExitCodeAreKept) {
  TestDir folder;
  const auto log = folder / "log";
  const auto good = run_program({"sh", "-c", "echo one; echo two >&2"}, log, kLimit);
  ASSERT_TRUE(good);
  EXPECT_TRUE(good->ok());
  const auto bad = run_program({"sh", "-c", "echo three; exit 7"}, log, kLimit);
  ASSERT_TRUE(bad);
  EXPECT_FALSE(bad->ok());
  EXPECT_EQ(bad->reason(kLimit), "exit code 7");
  EXPECT_EQ(read_file(log).value(), "one\ntwo\nthree\n");  // appended, both streams
  EXPECT_EQ(last_lines(log, 2), "two | three");
}

TEST(Subprocess, ArgumentsAreNotReadByAShell) {
  TestDir folder;
  ASSERT_TRUE(run_program({"echo", "$HOME; x  `y`"}, folder / "log", kLimit));
  EXPECT_EQ(read_file(folder / "log").value(), "$HOME; x  `y`\n");
}

TEST(Subprocess, StdinIsEmptyAndTheEnvironmentIsOurs) {
  TestDir folder;
  ASSERT_TRUE(run_program({"sh", "-c", "cat; echo ${TMPDIR-none}"}, folder / "log", kLimit));
  const char* temporary = std::getenv("TMPDIR");
  EXPECT_EQ(read_file(folder / "log").value(), std::string(temporary == nullptr ? "none" : temporary) + "\n");
}

TEST(Subprocess, MissingProgramIsAnError) {
  TestDir folder;
  const auto finished = run_program({"no-such-program-of-culprit"}, folder / "log", kLimit);
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().id, "engine-start");
  EXPECT_NE(finished.error().message.find("no-such-program-of-culprit"), std::string::npos);
}

TEST(Subprocess, SignalAndTimeLimitAreTold) {
  TestDir folder;
  const auto killed = run_program({"sh", "-c", "kill -9 $$"}, folder / "log", kLimit);
  ASSERT_TRUE(killed);
  EXPECT_EQ(killed->ending.signal, SIGKILL);
  EXPECT_EQ(killed->reason(kLimit), "signal 9 (SIGKILL)");
  const auto slow = run_program({"sleep", "60"}, folder / "log", std::chrono::seconds(1));
  ASSERT_TRUE(slow);
  EXPECT_TRUE(slow->timed_out);
  EXPECT_EQ(slow->reason(std::chrono::seconds(1)), "no end within 1 s");
  EXPECT_FALSE(slow->ok());
}

TEST(Subprocess, LastLinesSkipBlankOnes) {
  TestDir folder;
  ASSERT_TRUE(write_file_whole(folder / "log", "a\n\n  \nb\t\nc\n"));
  EXPECT_EQ(last_lines(folder / "log", 2), "b | c");
  EXPECT_EQ(last_lines(folder / "absent", 2), "");
}

}  // namespace
}  // namespace culprit
