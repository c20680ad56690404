// The protocol's server side, in this process: requests from a file, answers into a file.
#include <fcntl.h>
#include <sys/wait.h>

#include <cstdio>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/hash.h"
#include "decode/facts_json.h"
#include "decode/ops.h"
#include "engine/driver_process.h"
#include "engines/kit/line_channel.h"
#include "engines/ref/test_engine.h"

namespace culprit::ref {
namespace {

class Protocol : public testing::Test {
 protected:
  /// All that the server answers to these lines.
  std::vector<Json> answers(const std::string& lines, kit::Backend& backend) {
    EXPECT_TRUE(write_file_whole(dir_ / "requests", lines));
    {
      const Descriptor in(::open((dir_ / "requests").c_str(), O_RDONLY | O_CLOEXEC));
      const Descriptor out(::open((dir_ / "answers").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
      EXPECT_EQ(kit::serve(backend, in.get(), out.get()), 0);
    }
    std::vector<Json> found;
    const auto text = *read_file(dir_ / "answers");
    for (std::size_t begin = 0; begin < text.size();) {
      const auto end = text.find('\n', begin);
      found.push_back(*parse_json(text.substr(begin, end - begin)));
      begin = end + 1;
    }
    return found;
  }
  std::vector<Json> answers(const std::string& lines) { return answers(lines, backend_); }

  static std::string line(int id, const char* action, Json fields = Json::object()) {
    fields["id"] = id;
    fields["do"] = action;
    return fields.dump() + "\n";
  }
  std::string load_line(int id) {
    EXPECT_TRUE(write_random_model(dir_ / "model", {.facts = tiny_llama_facts()}));
    return line(id, "load", {{"plan", {{"model", (dir_ / "model").string()}, {"dtype", "f32"}}}});
  }
  static std::string error_of(const Json& answer) {
    return answer.at("event") == "error" ? answer.at("error").at("id").get<std::string>() : std::string();
  }

  TestDir dir_;
  RefBackend backend_{"culprit-ref"};
};

TEST_F(Protocol, HelloSaysWhatTheKitAddsToTheEngine) {
  const auto found = answers(line(4, "hello", {{"protocol", 1}}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].at("id"), 4);
  EXPECT_EQ(found[0].at("event"), "result");
  const auto& hello = found[0].at("hello");
  EXPECT_EQ(hello.at("protocol"), 1);
  EXPECT_EQ(hello.at("weight_sources"), Json::array({"culprit"}));
  EXPECT_EQ(hello.at("cache_kinds"), Json::array({"concat", "padded", "rotating", "sink_window", "quantized"}));
  EXPECT_EQ(hello.at("interventions"), Json::array({"exact", "variant", "replace", "keep"}));
  EXPECT_EQ(hello.at("faults").size(), fault_catalogue().size());
  for (const auto op : all_ops()) EXPECT_FALSE(hello.at("ops").at(std::string(name_of(op))).at("variants").empty()) << name_of(op);
}

TEST_F(Protocol, EveryLineIsAnsweredOnceWhateverItHolds) {
  const std::string lines =
      "no "
      "json\n[1,2]\n{\"do\":\"hello\"}\n{\"id\":\"x\",\"do\":\"hello\"}\n{\"id\":8}\n{\"id\":9,\"do\":7}\n{\"id\":10,\"do\":\"dance\"}"
      "\n\n" +
      std::string(kit::kLineLimit + 1, ' ') + "\n" + line(11, "hello", {{"protocol", 2}}) + line(12, "hello") +
      line(13, "run", {{"trace", "x"}}) + line(14, "weights", {{"names", {"**"}}}) + line(15, "load") +
      line(16, "load", {{"plan", {{"model", "/no/such/model"}}}}) + line(17, "load", {{"plan", {{"model", "m"}, {"dtype", "i32"}}}}) +
      line(18, "hello", {{"protocol", 1}});
  const std::vector<std::pair<int, std::string>> expected = {
      {0, "json-invalid"},   {0, "json-invalid"},   {0, "json-invalid"},   {0, "json-invalid"},
      {8, "json-invalid"},   {9, "json-invalid"},   {10, "not-supported"}, {0, "json-invalid"},
      {11, "not-supported"}, {12, "json-invalid"},  {13, "plan-invalid"},  {14, "plan-invalid"},
      {15, "json-invalid"},  {16, "model-missing"}, {17, "not-supported"}, {18, ""}};
  std::vector<std::pair<int, std::string>> actual;
  for (const auto& answer : answers(lines)) actual.emplace_back(answer.at("id").get<int>(), error_of(answer));
  EXPECT_EQ(actual, expected);
}

TEST_F(Protocol, StopIsTheLastThingAnswered) {
  const auto found = answers(line(1, "stop") + line(2, "hello", {{"protocol", 1}}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0], (Json{{"id", 1}, {"event", "result"}}));
}

TEST_F(Protocol, LoadsListsWeightsAndRuns) {
  const auto trace = (dir_ / "trace").string();
  const auto found = answers(
      load_line(1) + line(2, "weights", {{"names", {"w.layers.*.q", "w.embed"}}, {"values", true}, {"folder", dir_.path().string()}}) +
      line(3, "run", {{"plan", to_json(three_rows({3, 1}))}, {"trace", trace}}) +
      line(4, "run", {{"plan", to_json(three_rows({3, 1}))}, {"trace", trace}}));
  ASSERT_EQ(found.size(), 6u);
  ASSERT_EQ(found[1].at("weights").size(), 4u);
  const auto file = Safetensors::open(found[1].at("file").get<std::string>());
  ASSERT_TRUE(file);
  for (const auto& weight : found[1].at("weights"))
    EXPECT_EQ(weight.at("hash"), xxh3_128(file->tensor(weight.at("name").get<std::string>())->contiguous_bytes())) << weight.dump();
  EXPECT_EQ(found[2], (Json{{"id", 3}, {"event", "step"}, {"step", 0}}));
  EXPECT_EQ(found[3].at("step"), 1);
  EXPECT_EQ(found[4].at("steps"), 2);
  EXPECT_EQ(found[4].at("argmax").size(), 2u);
  const auto opened = Trace::open(trace);
  ASSERT_TRUE(opened);
  EXPECT_TRUE(opened->complete());
  EXPECT_EQ(opened->header().at("load").at("dtype"), "f32");
  EXPECT_EQ(opened->header().at("hello").at("engine"), "ref");
  EXPECT_EQ(opened->header().at("model").at("facts"), to_json(tiny_llama_facts()));
  EXPECT_EQ(run_plan_from_json(opened->header().at("plan"))->sequences, three_rows({3, 1}).sequences);
  EXPECT_EQ(error_of(found[5]), "file-write") << "a trace is not written over another";
}

/// An engine that throws from one op, and prints where it should not.
class Rude : public RefBackend {
 public:
  Rude() : RefBackend("culprit-ref") {}
  Result<kit::Array> apply(const kit::OpRequest& request) override {
    std::puts("{\"id\":1,\"event\":\"result\"}");
    std::fflush(stdout);
    if (request.node->op == Op::sdpa && throws) throw std::runtime_error("[sdpa] no such kernel \xff");
    return RefBackend::apply(request);
  }
  bool throws = true;
};

TEST_F(Protocol, AnEngineThatThrowsEndsTheRequestOnly) {
  Rude rude;
  const auto run = [&](int id, const char* name) {
    return line(id, "run", {{"plan", to_json(three_rows({1}))}, {"trace", (dir_ / name).string()}});
  };
  const auto found = answers(load_line(1) + run(2, "t2") + line(3, "hello", {{"protocol", 1}}), rude);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(error_of(found[1]), "engine-error");
  EXPECT_NE(found[1].at("error").at("message").get<std::string>().find("[sdpa] no such kernel"), std::string::npos);
  EXPECT_EQ(found[2].at("event"), "result");
  EXPECT_FALSE(Trace::open(dir_ / "t2")->complete());
}

TEST_F(Protocol, AnEngineThatPrintsReachesTheLogAndNotTheProtocol) {
  ASSERT_TRUE(
      write_file_whole(dir_ / "in", load_line(1) + line(2, "run", {{"plan", to_json(three_rows({1}))}, {"trace", (dir_ / "t").string()}})));
  const auto child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto flags = O_WRONLY | O_CREAT | O_TRUNC;
    const bool ready = ::dup2(::open((dir_ / "in").c_str(), O_RDONLY), 0) == 0 &&
                       ::dup2(::open((dir_ / "out").c_str(), flags, 0600), 1) == 1 &&
                       ::dup2(::open((dir_ / "log").c_str(), flags, 0600), 2) == 2;
    Rude rude;
    rude.throws = false;
    ::_exit(ready ? kit::serve(rude) : 99);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const auto out = *read_file(dir_ / "out");
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 3) << "load, step and run: " << out;
  EXPECT_FALSE(read_file(dir_ / "log")->empty());
}

TEST(RefProcess, SpeaksTheProtocolAndNamesItsOwnBinary) {
  TestDir dir;
  const std::chrono::seconds limit(60);
  auto process = DriverProcess::start({{CULPRIT_REF}, dir / "work"});
  ASSERT_TRUE(process) << to_string(process.error());
  const auto hello = (*process)->request("hello", {{"protocol", 1}}, limit);
  ASSERT_TRUE(hello) << to_string(hello.error());
  EXPECT_EQ(hello->at("hello").at("library_sha256"), *sha256_file(CULPRIT_REF));

  ASSERT_TRUE(write_random_model(dir / "model", {.facts = tiny_llama_facts()}));
  const auto loaded = (*process)->request("load", {{"plan", {{"model", (dir / "model").string()}, {"dtype", "bf16"}}}}, limit);
  ASSERT_TRUE(loaded) << to_string(loaded.error());
  const auto run = [&](const RunPlan& plan, const std::string& name) {
    return (*process)->request("run", {{"plan", to_json(plan)}, {"trace", (dir / name).string()}}, limit);
  };
  auto bad = three_rows({3, 1});
  bad.variants["linear"] = "magic";
  EXPECT_EQ(run(bad, "bad").error().id, "not-supported");
  const auto good = run(three_rows({3, 1}), "good");
  ASSERT_TRUE(good) << to_string(good.error());
  const auto trace = Trace::open(dir / "good");
  ASSERT_TRUE(trace && trace->complete());
  for (const auto& record : trace->records()) EXPECT_TRUE(trace->verify(record)) << record.tap;
}

}  // namespace
}  // namespace culprit::ref
