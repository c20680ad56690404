#include "engines/kit/line_channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/test_dir.h"

namespace culprit::kit {
namespace {

class Lines : public testing::Test {
 protected:
  /// A channel that reads `text`.
  LineChannel reading(const std::string& text) {
    EXPECT_TRUE(write_file_whole(dir_ / "in", text));
    in_ = Descriptor(::open((dir_ / "in").c_str(), O_RDONLY | O_CLOEXEC));
    out_ = Descriptor(::open((dir_ / "out").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    return {in_.get(), out_.get()};
  }
  TestDir dir_;
  Descriptor in_, out_;
  std::string line_;
};

using Read = LineChannel::Read;

TEST_F(Lines, AreHandedOutOneByOneAlsoTheLastWithoutAnEnd) {
  auto channel = reading("one\n\ntwo");
  EXPECT_EQ(channel.read_line(line_), Read::line);
  EXPECT_EQ(line_, "one");
  EXPECT_EQ(channel.read_line(line_), Read::line);
  EXPECT_EQ(line_, "");
  EXPECT_EQ(channel.read_line(line_), Read::line);
  EXPECT_EQ(line_, "two");
  EXPECT_EQ(channel.read_line(line_), Read::end);
}

TEST_F(Lines, ThatAreTooLongAreReadPastAndTheNextIsWhole) {
  for (const auto excess : {std::size_t{1}, 3 * kLineLimit}) {
    auto channel = reading(std::string(kLineLimit, 'x') + "\n" + std::string(kLineLimit + excess, 'y') + "\nnext\n");
    EXPECT_EQ(channel.read_line(line_), Read::line);
    EXPECT_EQ(line_.size(), kLineLimit);
    EXPECT_EQ(channel.read_line(line_), Read::too_long);
    EXPECT_EQ(channel.read_line(line_), Read::line);
    EXPECT_EQ(line_, "next");
    EXPECT_EQ(channel.read_line(line_), Read::end);
  }
}

TEST_F(Lines, ThatAreTooLongWithoutAnEndAreSaidToBe) {
  auto channel = reading(std::string(2 * kLineLimit, 'y'));
  EXPECT_EQ(channel.read_line(line_), Read::too_long);
  EXPECT_EQ(channel.read_line(line_), Read::end);
}

TEST_F(Lines, AreWrittenWholeAndAClosedReaderIsNoticed) {
  auto channel = reading("");
  EXPECT_TRUE(channel.write_line("answer"));
  EXPECT_TRUE(channel.write_line(""));
  EXPECT_EQ(*read_file(dir_ / "out"), "answer\n\n");
  LineChannel nowhere(in_.get(), in_.get());  // open for reading only
  EXPECT_FALSE(nowhere.write_line("answer"));
}

}  // namespace
}  // namespace culprit::kit
