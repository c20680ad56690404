#include "trace/trace.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/file.h"

namespace culprit {
namespace {

namespace fs = std::filesystem;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

/// An empty folder of the test's own, gone afterwards.
class TraceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto pattern = (fs::temp_directory_path() / "trace_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path root_;
};

Coordinates coordinates(std::int64_t position, std::int64_t slots) {
  Coordinates at{.sequence = {7, 3}, .position = {{position}, {position}}, .slot = {{}, {}}};
  for (auto& row : at.slot)
    for (std::int64_t i = 0; i < slots; ++i) row.push_back(i <= position ? i : -1);
  return at;
}

/// Two rows, strided and aliased, with NaN, infinities and a negative zero among the values.
std::vector<std::pair<std::string, Tensor>> tensors_of(int step) {
  const auto values = std::vector<double>{1.5, kNaN, -0.0, kInf, -kInf, 3.0 + step, 0x1p-24, -65504, 0.1, 1, 2, 3};
  const auto heads = Tensor::from_values(DType::f16, {2, 3, 2}, values).with_storage_id(0xfeedfacecafebeef);
  return {{"layers.0.q", heads.transposed(1, 2)},
          {"layers.0.k", heads.sliced(1, 1, 3)},
          {"embed", Tensor::from_values(DType::f64, {2, 1, 3}, std::vector<double>{0.1, 1e300, -1e-300, 1.0 / 3, 2, step + 0.7})},
          {"nothing", Tensor::zeros(DType::bf16, {2, 0, 4})},
          {"scalar", Tensor::from_values(DType::i64, {}, std::vector<double>{-5})}};
}

void write_steps(TraceWriter& writer, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    for (const auto& [tap, tensor] : tensors_of(step)) writer.add(step, tap, tensor, coordinates(257 + step, 512), "replaced");
    writer.add(step, "logits", tensors_of(step)[0].second, coordinates(257 + step, 0), {}, true);
    ASSERT_TRUE(writer.end_step());
  }
}

void write_trace(const fs::path& folder, int steps) {
  auto writer = TraceWriter::create(folder, {{"plan", {{"name", "incremental"}}}});
  ASSERT_TRUE(writer) << to_string(writer.error());
  write_steps(*writer, 0, steps);
  ASSERT_TRUE(writer->finish({{"seconds", 0.5}}));
}

bool same_double(double expected, double actual) { return std::memcmp(&expected, &actual, sizeof expected) == 0; }

std::string bytes_of(const Tensor& tensor) {
  const auto contiguous = tensor.contiguous();
  const auto bytes = contiguous.contiguous_bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void replace_file(const fs::path& path, std::string_view text) {
  fs::remove(path);
  ASSERT_TRUE(write_file_whole(path, text));
}

TEST_F(TraceTest, KeepsEveryTensorBitForBitWithItsLayout) {
  write_trace(root_ / "t", 3);
  const auto trace = Trace::open(root_ / "t");
  ASSERT_TRUE(trace) << to_string(trace.error());
  EXPECT_TRUE(trace->complete()) << trace->ended_by();
  EXPECT_EQ(trace->steps(), 3);
  EXPECT_EQ(trace->records().size(), 18U);
  EXPECT_EQ(trace->header().at("plan").at("name"), "incremental");
  EXPECT_EQ(trace->header().at("totals").at("seconds"), 0.5);
  for (int step = 0; step < 3; ++step) {
    for (const auto& [tap, expected] : tensors_of(step)) {
      const auto* record = trace->find(step, tap);
      ASSERT_NE(record, nullptr);
      const auto& layout = expected.layout();
      EXPECT_EQ(record->layout.dtype, layout.dtype);
      EXPECT_EQ(record->layout.shape, layout.shape);
      EXPECT_EQ(record->layout.strides, layout.strides);
      EXPECT_EQ(record->layout.offset, layout.offset);
      EXPECT_EQ(record->layout.storage_id == 0xfeedfacecafebeef, layout.dtype == DType::f16);  // others are new at each call
      EXPECT_EQ(record->at.sequence, coordinates(0, 0).sequence);
      EXPECT_EQ(record->at.position, coordinates(257 + step, 512).position);
      EXPECT_EQ(record->at.slot, coordinates(257 + step, 512).slot);
      EXPECT_EQ(record->note, "replaced");
      const auto actual = trace->tensor(*record);
      ASSERT_TRUE(actual) << to_string(actual.error());
      EXPECT_EQ(bytes_of(expected), bytes_of(*actual)) << tap;
      EXPECT_TRUE(trace->verify(*record));
    }
  }
}

TEST_F(TraceTest, AHashOnlyRecordHasTheHashOfTheValuesAndNoValues) {
  write_trace(root_ / "t", 1);
  const auto trace = Trace::open(root_ / "t");
  ASSERT_TRUE(trace);
  const auto* hashed = trace->find(0, "logits");
  ASSERT_NE(hashed, nullptr);
  EXPECT_EQ(hashed->hash, trace->find(0, "layers.0.q")->hash);
  EXPECT_NE(hashed->hash, trace->find(0, "layers.0.k")->hash);
  EXPECT_EQ(trace->tensor(*hashed).error().id, "trace-invalid");
  EXPECT_EQ(trace->verify(*hashed).error().id, "trace-invalid");
  EXPECT_EQ(trace->find(1, "logits"), nullptr);
}

TEST(TapRecordTest, RoundTripsExactly) {
  TapRecord record{.step = 12,
                   .tap = "layers.3.k_cache",
                   .layout = {.dtype = DType::bf16, .shape = {2, 3}, .strides = {-3, 0}, .offset = 17, .storage_id = ~std::uint64_t{0}},
                   .at = {.sequence = {4, -1}, .position = {{257, 258, 259, 300}, {}}, .slot = {{8, 9, 2, 3, 4, -1, -1, -1, -1}, {5, 5}}},
                   .hash = "0123456789abcdef0123456789abcdef",
                   .count = 6,
                   .min = -0.1,
                   .max = 0x1.fffffffffffffp+1023,
                   .l2 = 0x0.0000000000001p-1022,
                   .nans = 1,
                   .infinities = 2,
                   .file = "step-000012.safetensors",
                   .key = "k",
                   .note = "fault:F01"};
  for (const auto& [min, max] : std::vector<std::pair<double, double>>{{-0.1, 1.0 / 3}, {-0.0, kInf}, {kNaN, -kInf}}) {
    record.min = min;
    record.max = max;
    const auto text = to_json(record).dump();
    const auto actual = tap_record_from_json(*parse_json(text));
    ASSERT_TRUE(actual) << to_string(actual.error());
    EXPECT_EQ(to_json(*actual).dump(), text);
    EXPECT_TRUE(same_double(actual->l2, record.l2));
    EXPECT_TRUE(same_double(actual->min, min) || std::isnan(min));
    EXPECT_TRUE(same_double(actual->max, max));
    EXPECT_EQ(actual->layout.storage_id, record.layout.storage_id);
    EXPECT_EQ(actual->at.position, record.at.position);
    EXPECT_EQ(actual->at.slot, record.at.slot);
  }
}

TEST(TapRecordTest, RefusesWhatCannotBe) {
  TapRecord record;
  record.tap = "q";
  record.layout = {.dtype = DType::f32, .shape = {2}, .strides = {1}};
  record.count = 2;
  record.hash = std::string(32, '0');
  const auto good = to_json(record);
  ASSERT_TRUE(tap_record_from_json(good));
  const std::vector<std::pair<const char*, Json>> bad = {{"step", -1},
                                                         {"step", 1.5},
                                                         {"tap", ""},
                                                         {"dtype", "f8"},
                                                         {"shape", {3}},
                                                         {"shape", {-2}},
                                                         {"strides", Json::array()},
                                                         {"count", 1},
                                                         {"hash", "abc"},
                                                         {"nans", 3},
                                                         {"infinities", -1},
                                                         {"min", "small"},
                                                         {"file", "../x"},
                                                         {"file", "a/b"},
                                                         {"file", "present"},
                                                         {"storage_id", "12"},
                                                         {"at", Json::array()}};
  for (const auto& [key, value] : bad) {
    auto json = good;
    json[key] = value;
    const auto read = tap_record_from_json(json);
    ASSERT_FALSE(read) << key << " = " << value;
    EXPECT_EQ(read.error().id, "trace-invalid") << key;
  }
  for (const auto& [key, value] : good.items()) {
    if (key == "note") continue;
    auto json = good;
    json.erase(key);
    EXPECT_FALSE(tap_record_from_json(json)) << "without " << key;
  }
  auto bomb = good;
  bomb["at"]["slot"] = *parse_json(R"([[{"start":0,"count":1099511627776}]])");
  const auto read = tap_record_from_json(bomb);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("1099511627776"), std::string::npos) << read.error().message;
}

TEST_F(TraceTest, AnyTruncationOfTheRecordsKeepsTheWholeSteps) {
  auto writer = TraceWriter::create(root_ / "t", Json::object());
  ASSERT_TRUE(writer);
  for (int step = 0; step < 3; ++step) {
    writer->add(step, "embed", tensors_of(step)[2].second, coordinates(step, 8));
    writer->add(step, "logits", tensors_of(step)[0].second, coordinates(step, 8), {}, true);
    ASSERT_TRUE(writer->end_step());
  }
  ASSERT_TRUE(writer->finish({}));
  const auto path = root_ / "t" / "taps.jsonl";
  const auto text = *read_file(path);
  std::vector<std::size_t> step_ends;
  std::size_t lines = 0;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] == '\n' && ++lines % 2 == 0) step_ends.push_back(i + 1);
  ASSERT_EQ(step_ends.size(), 3U);
  for (std::size_t bytes = text.size();; --bytes) {  // one file, ever shorter
    fs::resize_file(path, bytes);
    const auto trace = Trace::open(root_ / "t");
    ASSERT_TRUE(trace) << bytes << ": " << to_string(trace.error());
    const auto expected = std::count_if(step_ends.begin(), step_ends.end(), [&](std::size_t end) { return end <= bytes; });
    ASSERT_EQ(trace->steps(), expected) << bytes;
    ASSERT_EQ(trace->complete(), bytes == text.size()) << bytes;
    ASSERT_EQ(trace->ended_by().empty(), trace->complete()) << bytes;
    ASSERT_EQ(trace->records().size(), static_cast<std::size_t>(expected) * 2) << bytes;
    if (bytes == 0) break;
  }
  fs::remove(path);
  const auto trace = Trace::open(root_ / "t");
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->steps(), 0);
  EXPECT_FALSE(trace->complete());
}

TEST_F(TraceTest, AnyTruncationOfAStepFileEndsTheTraceBeforeIt) {
  write_trace(root_ / "t", 3);
  const auto path = root_ / "t" / "step-000001.safetensors";
  const auto bytes = *read_file(path);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    replace_file(path, std::string_view(bytes).substr(0, size));
    const auto trace = Trace::open(root_ / "t");
    ASSERT_TRUE(trace) << size;
    ASSERT_EQ(trace->steps(), 1) << size;
    ASSERT_FALSE(trace->complete()) << size;
    ASSERT_EQ(trace->find(1, "embed"), nullptr) << size;
    ASSERT_NE(trace->ended_by().find("step-000001"), std::string::npos) << trace->ended_by();
  }
  fs::remove(path);
  EXPECT_EQ(Trace::open(root_ / "t")->steps(), 1);
  replace_file(path, bytes);
  EXPECT_TRUE(Trace::open(root_ / "t")->complete());
  fs::copy_file(root_ / "t" / "step-000002.safetensors", path,
                fs::copy_options::overwrite_existing);  // whole, of the same size, but another
  const auto swapped = Trace::open(root_ / "t");
  ASSERT_TRUE(swapped && swapped->find(1, "embed") != nullptr);
  EXPECT_EQ(swapped->verify(*swapped->find(1, "embed")).error().id, "trace-invalid");
}

TEST_F(TraceTest, AnyTruncationOfTheHeaderIsAnError) {
  write_trace(root_ / "t", 1);
  const auto path = root_ / "t" / "trace.json";
  const auto text = *read_file(path);
  const auto last = text.rfind('}');
  for (std::size_t size = 0; size <= last; ++size) {
    replace_file(path, std::string_view(text).substr(0, size));
    const auto trace = Trace::open(root_ / "t");
    ASSERT_FALSE(trace) << size;
    ASSERT_EQ(trace.error().id, "trace-invalid");
  }
  for (const auto* other : {"[]", R"({"schema":"culprit-trace","version":2,"complete":true})",
                            R"({"schema":"x","version":1,"complete":true})", R"({"schema":"culprit-trace","version":1})"}) {
    replace_file(path, other);
    EXPECT_EQ(Trace::open(root_ / "t").error().id, "trace-invalid") << other;
  }
  fs::remove(path);
  EXPECT_EQ(Trace::open(root_ / "t").error().id, "trace-invalid");
  EXPECT_EQ(Trace::open(root_ / "absent").error().id, "file-missing");
}

TEST_F(TraceTest, GarbageInTheMiddleEndsTheTraceAtTheLastGoodStep) {
  write_trace(root_ / "t", 3);
  const auto path = root_ / "t" / "taps.jsonl";
  const auto text = *read_file(path);
  std::vector<std::size_t> starts{0};
  for (std::size_t i = 0; i + 1 < text.size(); ++i)
    if (text[i] == '\n') starts.push_back(i + 1);
  ASSERT_EQ(starts.size(), 18U);
  for (std::size_t line = 0; line < starts.size(); ++line) {
    for (const auto* garbage : {"\n", "garbage\n", "{}\n", "\xff\xfe\n", "{\"step\":0}\n"}) {
      auto changed = text;
      changed.insert(starts[line], garbage);
      replace_file(path, changed);
      const auto trace = Trace::open(root_ / "t");
      ASSERT_TRUE(trace);
      EXPECT_EQ(trace->steps(), static_cast<int>(line / 6)) << line << garbage;
      EXPECT_FALSE(trace->complete());
    }
    auto doubled = text;  // a record that is there twice
    doubled.insert(starts[line], text.substr(starts[line], line + 1 < starts.size() ? starts[line + 1] - starts[line] : text.npos));
    replace_file(path, doubled);
    EXPECT_FALSE(Trace::open(root_ / "t")->complete()) << line;
  }
}

TEST_F(TraceTest, AnUnfinishedTraceIsReadableAndNotComplete) {
  auto writer = TraceWriter::create(root_ / "t", Json::object());
  ASSERT_TRUE(writer);
  EXPECT_EQ(Trace::open(root_ / "t")->steps(), 0);
  write_steps(*writer, 0, 2);
  writer->add(2, "embed", tensors_of(2)[2].second, coordinates(0, 0));
  const auto trace = Trace::open(root_ / "t");
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->steps(), 2);
  EXPECT_FALSE(trace->complete());
  EXPECT_EQ(TraceWriter::create(root_ / "t", Json::object()).error().id, "file-write");  // never over another trace
}

TEST_F(TraceTest, TheWriterRefusesStepsThatReadersCouldNotTell) {
  const auto tensor = tensors_of(0)[2].second;
  const auto refused = [&](const char* folder, std::vector<std::pair<int, std::string>> adds) {
    auto writer = TraceWriter::create(root_ / folder, Json::object());
    writer->add(1, "embed", tensor, {});
    EXPECT_TRUE(writer->end_step());
    for (const auto& [step, tap] : adds) writer->add(step, tap, tensor, {});
    EXPECT_EQ(writer->end_step().error().id, "internal");
    EXPECT_EQ(writer->finish({}).error().id, "internal");
    EXPECT_EQ(Trace::open(root_ / folder)->steps(), 1);
  };
  refused("again", {{1, "q"}});
  refused("twice", {{2, "q"}, {2, "q"}});
  refused("mixed", {{2, "q"}, {3, "k"}});
}

/// Writes steps under a file size limit in a process of its own, as a full disk would stop it. Its exit code says what it saw.
int write_until_full(const fs::path& folder, rlim_t bytes_max) {
  auto writer = TraceWriter::create(folder, Json::object());
  if (!writer) return 10;
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{bytes_max, bytes_max};
  if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 11;
  for (int step = 0; step < 50; ++step) {
    writer->add(step, "embed", tensors_of(step)[2].second, coordinates(step, 8));
    const auto written = writer->end_step();
    if (written) continue;
    if (written.error().id != "engine-disk") return 12;
    writer->add(step + 1, "embed", tensors_of(step)[2].second, coordinates(step, 8));
    if (writer->end_step() || writer->finish({})) return 13;  // after a failure: no gaps, and never complete
    return step;
  }
  return 14;
}

void expect_whole_until_full(const fs::path& folder, rlim_t bytes_max, bool some_steps) {
  const auto child = ::fork();
  if (child == 0) ::_exit(100 + write_until_full(folder, bytes_max));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  const auto trace = Trace::open(folder);
  ASSERT_TRUE(trace);
  EXPECT_EQ(WEXITSTATUS(status), 100 + trace->steps());
  EXPECT_EQ(trace->steps() > 0, some_steps);
  EXPECT_FALSE(trace->complete());
  EXPECT_EQ(trace->ended_by(), "the run did not finish");  // nothing torn was left
  for (const auto& record : trace->records()) EXPECT_TRUE(trace->verify(record));
  int step_files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
    step_files += entry.path().extension() == ".safetensors";
  }
  EXPECT_EQ(step_files, trace->steps());
}

TEST_F(TraceTest, AFullDiskIsNamedAndLeavesNothingHalfWritten) {
  expect_whole_until_full(root_ / "records", 1500, true);  // the records outgrow the limit after a few steps
  expect_whole_until_full(root_ / "values", 100, false);   // no step file fits
}

}  // namespace
}  // namespace culprit
