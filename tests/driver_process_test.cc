// Every way in which a driver may misbehave ends in the stated error, in time, with no process left.
#include "engine/driver_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <thread>

#include "base/descriptor.h"
#include "base/file.h"

namespace culprit {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kLimit = 20s;    // of requests that are to be answered, or to fail long before
constexpr auto kShort = 200ms;  // of requests that are to exceed it
constexpr auto kSoon = 10s;     // far below kLimit, far above what a busy machine needs

class DriverProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    auto pattern = (fs::temp_directory_path() / "driver_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override {
    driver_.reset();
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
    EXPECT_EQ(errno, ECHILD);
    fs::remove_all(root_);
  }

  /// Starts the driver and has it answer once.
  void start(const std::string& behaviour) {
    auto driver = DriverProcess::start({.argv = {CULPRIT_MISBEHAVE, behaviour, lock_file().string()}, .work_folder = root_ / "work"});
    ASSERT_TRUE(driver) << to_string(driver.error());
    driver_ = std::move(*driver);
    const auto answer = driver_->request("hello", {{"protocol", 1}}, kLimit);
    ASSERT_TRUE(answer) << to_string(answer.error());
    ASSERT_TRUE(driver_->running());
  }
  [[nodiscard]] Result<Json> ask(std::chrono::milliseconds limit = kLimit, Json fields = Json::object()) {
    return driver_->request("run", std::move(fields), limit, [&](const Json& event) { events_.push_back(event); });
  }

  /// The error that the second request ends in; the process must be gone, and stay gone with the same error.
  Error fatal_error(const std::string& behaviour, std::chrono::milliseconds limit = kLimit) {
    start(behaviour);
    const int pid = driver_->pid();
    const auto begin = Clock::now();
    const auto answer = ask(limit);
    EXPECT_LT(Clock::now() - begin, kSoon) << behaviour;
    if (answer) {
      ADD_FAILURE() << behaviour << " was answered: " << answer->dump().substr(0, 200);
      return {};
    }
    EXPECT_FALSE(driver_->running());
    EXPECT_EQ(::kill(pid, 0), -1) << behaviour;
    EXPECT_EQ(errno, ESRCH);
    const auto again = ask();
    EXPECT_TRUE(!again && again.error().id == answer.error().id);
    return answer.error();
  }
  void expect_fatal(const std::string& behaviour, std::string_view id, std::string_view in_message,
                    std::chrono::milliseconds limit = kLimit) {
    const auto error = fatal_error(behaviour, limit);
    EXPECT_EQ(error.id, id) << behaviour << ": " << error.message;
    EXPECT_NE(error.message.find(in_message), std::string::npos) << behaviour << ": " << error.message;
    for (const char c : error.message) EXPECT_TRUE(c >= ' ' && c <= '~') << behaviour << ": " << error.message;
    EXPECT_LT(error.message.size(), 4000U);
  }

  [[nodiscard]] fs::path lock_file() const { return root_ / "lock"; }
  /// The grandchild holds the lock as long as it lives. (Asking for its pid would also find a zombie that nobody adopts.)
  [[nodiscard]] bool grandchild_ends_within(std::chrono::milliseconds limit) const {
    const Descriptor lock(::open(lock_file().c_str(), O_RDWR | O_CLOEXEC));
    if (!lock) return false;
    const auto deadline = Clock::now() + limit;
    while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      if (Clock::now() > deadline) return false;
      std::this_thread::sleep_for(2ms);
    }
    return true;
  }
  void wait_for_ready() const {
    const auto deadline = Clock::now() + kSoon;
    while (!fs::exists(lock_file().string() + ".ready") && Clock::now() < deadline) std::this_thread::sleep_for(1ms);
  }

  fs::path root_;
  std::unique_ptr<DriverProcess> driver_;
  std::vector<Json> events_;
};

TEST_F(DriverProcessTest, AnswersRequestsUntilItIsStopped) {
  start("ok");
  for (int i = 0; i < 20; ++i) {
    const auto answer = ask();
    ASSERT_TRUE(answer) << to_string(answer.error());
    EXPECT_EQ(answer->at("event"), "result");
  }
  const auto stopped = driver_->request("stop", Json::object(), kLimit);
  EXPECT_TRUE(stopped) << to_string(stopped.error());
  EXPECT_FALSE(driver_->running());
  EXPECT_EQ(ask().error().id, "engine-crash");
}

TEST_F(DriverProcessTest, AStopThatEndsBadlyIsACrash) {
  start("crash");
  const auto stopped = driver_->request("stop", Json::object(), kLimit);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().id, "engine-crash");
  EXPECT_NE(stopped.error().message.find("exit code 7"), std::string::npos) << stopped.error().message;
}

TEST_F(DriverProcessTest, ACrashIsNamedWithItsLastWords) {
  expect_fatal("crash", "engine-crash", "exit code 3");
  EXPECT_NE(ask().error().message.find("first line | the last words"), std::string::npos) << ask().error().message;
}

TEST_F(DriverProcessTest, ACrashIsNotGivenTheLastWordsOfAnother) {
  fs::create_directories(root_ / "work");
  ASSERT_TRUE(write_file_whole(root_ / "work" / "driver.log", "of another process\n"));
  EXPECT_EQ(fatal_error("crash").message.find("another"), std::string::npos);
  EXPECT_EQ(*read_file(driver_->log()), "of another process\nfirst line\nthe last words\n");
}

TEST_F(DriverProcessTest, ASignalIsNamed) { expect_fatal("segfault", "engine-crash", "signal 11 (SIGSEGV)"); }
TEST_F(DriverProcessTest, AnExitIsACrashEvenWithCode0) { expect_fatal("exit-0-before-answer", "engine-crash", "exit code 0"); }
TEST_F(DriverProcessTest, ATornAnswerIsACrash) { expect_fatal("partial-line-then-exit", "engine-crash", "in the middle of a line"); }

TEST_F(DriverProcessTest, AnExitAfterTheAnswerIsFoundByTheNextRequest) {
  start("exit-after-answer");
  ASSERT_TRUE(ask());
  EXPECT_EQ(ask().error().id, "engine-crash");
}

TEST_F(DriverProcessTest, AHangIsEnded) { expect_fatal("hang", "engine-hang", "within 200 ms", kShort); }
TEST_F(DriverProcessTest, AHangThatIgnoresSigtermIsEnded) { expect_fatal("ignore-sigterm", "engine-hang", "'run'", kShort); }
TEST_F(DriverProcessTest, ProgressDoesNotExtendTheLimit) { expect_fatal("endless-progress", "engine-hang", "'run'", kShort); }

TEST_F(DriverProcessTest, AHangEndsWithAllThatItStarted) {
  start("hang-with-grandchild");
  ASSERT_TRUE(ask());
  EXPECT_FALSE(grandchild_ends_within(0ms));
  EXPECT_EQ(ask(kShort).error().id, "engine-hang");
  EXPECT_TRUE(grandchild_ends_within(kSoon));
}

TEST_F(DriverProcessTest, ACrashIsSeenThoughAnotherKeepsItsStdoutOpen) {
  expect_fatal("crash-with-grandchild", "engine-crash", "exit code 5");
  EXPECT_TRUE(grandchild_ends_within(kSoon));
}

TEST_F(DriverProcessTest, TheDestructorEndsTheWholeGroup) {
  start("answer-with-grandchild");
  ASSERT_TRUE(ask());
  EXPECT_FALSE(grandchild_ends_within(50ms));  // the lock works
  const int pid = driver_->pid();
  driver_.reset();
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_TRUE(grandchild_ends_within(kSoon));
}

TEST_F(DriverProcessTest, GarbageIsQuoted) {
  expect_fatal("garbage", "engine-garbage", "'Loading model... 100%'");
  expect_fatal("not-utf8", "engine-garbage", "\\xff\\xfe");
  expect_fatal("deep", "engine-garbage", "(1000000 bytes)");
  expect_fatal("wrong-id", "engine-garbage", "request 20, expected 2");
  expect_fatal("no-id", "engine-garbage", "'id' is missing");
  expect_fatal("no-event", "engine-garbage", "'event' is missing");
  expect_fatal("unknown-event", "engine-garbage", "no event 'resultt'");
  expect_fatal("two-results", "engine-garbage", "after the answer");
  expect_fatal("bare-error", "engine-garbage", "\"event\":\"error\"");
}

TEST_F(DriverProcessTest, ASecondResultThatComesLateIsFoundByTheNextRequest) {
  start("late-second-result");
  ASSERT_TRUE(ask());
  wait_for_ready();
  EXPECT_EQ(ask().error().id, "engine-garbage");
}

TEST_F(DriverProcessTest, AnAnswerBeforeTheRequestWasReadIsGarbage) {
  start("answer-before-reading");
  const auto answer = ask(kLimit, {{"padding", std::string(1'000'000, 'x')}});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().id, "engine-garbage");
  EXPECT_NE(answer.error().message.find("before the whole request"), std::string::npos) << answer.error().message;
}

TEST_F(DriverProcessTest, AClosedStdoutIsNoAnswer) { expect_fatal("close-stdout", "engine-garbage", "closed its stdout"); }

TEST_F(DriverProcessTest, AClosedStdinRaisesNoSigpipe) {
  start("close-stdin");
  ASSERT_TRUE(ask());
  const auto answer = ask(kShort, {{"padding", std::string(1'000'000, 'x')}});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().id, "engine-hang");
}

TEST_F(DriverProcessTest, TheLineLimitIsExact) {
  start("longest-line");
  const auto answer = ask();
  ASSERT_TRUE(answer) << to_string(answer.error());
  EXPECT_GT(answer->at("text").get_ref<const std::string&>().size(), 1'000'000U);
  expect_fatal("long-line", "engine-line-limit", "1048576");
  expect_fatal("endless-line", "engine-line-limit", "xxx");
}

TEST_F(DriverProcessTest, ALargeRequestArrivesWhole) {
  start("ok");
  for (const std::size_t padding : {1U, 65'536U, 1'000'000U}) {
    const auto answer = ask(kLimit, {{"padding", std::string(padding, 'x')}});
    ASSERT_TRUE(answer) << to_string(answer.error());
    EXPECT_GT(answer->at("bytes").get<std::size_t>(), padding);
  }
  EXPECT_EQ(ask(kLimit, {{"padding", std::string(std::size_t{1} << 20, 'x')}}).error().id, "plan-invalid");  // refused before it is sent
  EXPECT_EQ(ask(kLimit, {{"padding", "\xff"}}).error().id, "json-invalid");
  EXPECT_TRUE(ask());
}

TEST_F(DriverProcessTest, TheDriversOwnErrorsLeaveItRunning) {
  start("error-event");
  for (int i = 0; i < 3; ++i) {
    const auto answer = ask();
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().id, "not-supported");
    EXPECT_EQ(answer.error().message, "no variant 'x'");
    EXPECT_EQ(answer.error().where, "layers.0.q");
    EXPECT_TRUE(driver_->running());
  }
}

TEST_F(DriverProcessTest, AnErrorIdThatIsNotOursOrNotTheDriversToGiveIsAnEngineError) {
  start("unknown-error");
  EXPECT_EQ(to_string(ask().error()), "error[engine-error]: MyError: it broke");
  EXPECT_TRUE(driver_->running());
  start("claims-hang");
  EXPECT_EQ(ask().error().id, "engine-error");
  EXPECT_TRUE(driver_->running());
}

TEST_F(DriverProcessTest, StderrIsKeptHoweverMuch) {
  start("flood-stderr");
  ASSERT_TRUE(ask());
  EXPECT_EQ(fs::file_size(driver_->log()), 40'000U * 101U);
}

TEST_F(DriverProcessTest, SlowAnswersCountWhenTheyAreInTime) {
  start("slow-but-in-time");
  EXPECT_TRUE(ask());
}

TEST_F(DriverProcessTest, EventsArriveInOrder) {
  start("progress-events");
  ASSERT_TRUE(ask());
  ASSERT_EQ(events_.size(), 1000U);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(events_[static_cast<std::size_t>(i)].at("n"), i);
}

TEST_F(DriverProcessTest, TheTemporaryFolderIsTheChildsOnly) {
  const char* own = std::getenv("TMPDIR");
  const std::string before = own == nullptr ? "" : own;
  start("temporary-folder");
  const auto answer = ask();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->at("tmpdir"), (root_ / "work" / "tmp").string());
  EXPECT_TRUE(fs::is_directory(root_ / "work" / "tmp"));
  own = std::getenv("TMPDIR");
  EXPECT_EQ(before, own == nullptr ? "" : own);
}

TEST_F(DriverProcessTest, AProgramThatCannotStartIsNamed) {
  for (const auto& argv : std::vector<std::vector<std::string>>{{}, {""}, {"/nonexistent/driver"}, {root_.string()}}) {
    const auto driver = DriverProcess::start({.argv = argv, .work_folder = root_ / "work"});
    ASSERT_FALSE(driver);
    EXPECT_EQ(driver.error().id, "engine-start");
  }
  const auto driver = DriverProcess::start({.argv = {CULPRIT_MISBEHAVE, "ok"}, .work_folder = "/dev/null/work"});
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().id, "engine-start");
}

TEST_F(DriverProcessTest, ManyDriversLeaveNoDescriptorsBehind) {
  const auto open_descriptors = [] {
    int count = 0;
    for (int descriptor = 0; descriptor < 256; ++descriptor) count += ::fcntl(descriptor, F_GETFD) != -1;
    return count;
  };
  start("ok");
  driver_.reset();
  const int before = open_descriptors();
  for (int i = 0; i < 20; ++i) {
    start(i % 2 == 0 ? "ok" : "crash");
    static_cast<void>(ask());
    driver_.reset();
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace culprit
