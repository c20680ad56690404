// The reference engine, which is right until it fails: failing_engine HOW WHERE STEP [LOADER]. WHERE is a glob over the names of plans, and
// it fails in the middle of that step; or it is a request (hello, load, op), and it fails before the answer.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "engines/ref/program_path.h"
#include "engines/ref/ref_backend.h"
#include "format/gguf.h"

namespace culprit {
namespace {

namespace fs = std::filesystem;

/// Where the engine is when it fails.
struct Place {
  int protocol = -1;  // the descriptor that the answers go to
  std::int64_t id = 0;
  fs::path trace;
  int step = 0;
};

fs::path step_file(const Place& place, int step) { return place.trace / fmt::format("step-{:06}.safetensors", step); }

[[noreturn]] void say_and_wait(const Place& place, std::string_view text) {
  if (::write(place.protocol, text.data(), text.size()) < 0) std::_Exit(99);
  while (true) ::pause();  // else the step may be done before the process is ended
}

void cut_by(const fs::path& file, std::uintmax_t bytes) { fs::resize_file(file, fs::file_size(file) - bytes); }

using Failure = Result<void> (*)(const Place&);
struct Entry {
  std::string_view name;
  Failure show;
};

// What spoils a file lets the engine go on as if nothing were wrong.
const Entry kFailures[] = {
    {"crash",
     [](const Place&) -> Result<void> {
       const rlimit none{0, 0};
       ::setrlimit(RLIMIT_CORE, &none);
       ::signal(SIGSEGV, SIG_DFL);  // a sanitizer has its own
       ::raise(SIGSEGV);
       return {};
     }},
    {"exit",
     [](const Place&) -> Result<void> {
       std::fputs("no kernel for this shape\n", stderr);
       std::_Exit(3);
     }},
    {"hang",
     [](const Place&) -> Result<void> {
       while (true) ::pause();
     }},
    {"garbage", [](const Place& place) -> Result<void> { say_and_wait(place, "warning: falling back to the slow path\n"); }},
    {"empty-answer",  // of which no trace is left
     [](const Place& place) -> Result<void> {
       fs::remove_all(place.trace);
       say_and_wait(place,
                    fmt::format(R"({{"id":{},"event":"result","hello":{{"library_sha256":"","ops":{{"rope":3}}}}}})", place.id) + "\n");
     }},
    {"refusal", [](const Place&) -> Result<void> { return fail("not-supported", "no kernel for this"); }},
    {"error", [](const Place&) -> Result<void> { return fail("plan-invalid", "the engine dislikes this plan"); }},
    {"exception", [](const Place&) -> Result<void> { throw std::runtime_error("bad shape"); }},
    {"truncated-values",
     [](const Place& place) -> Result<void> {
       cut_by(step_file(place, place.step - 1), 100);
       return {};
     }},
    {"torn-records",
     [](const Place& place) -> Result<void> {
       cut_by(place.trace / "taps.jsonl", 100);
       return {};
     }},
    {"changed-values",
     [](const Place& place) -> Result<void> {
       std::fstream file(step_file(place, place.step - 1), std::ios::in | std::ios::out | std::ios::binary);
       file.seekp(-2, std::ios::end);
       file.put('\x55');
       return {};
     }},
    {"no-folder",
     [](const Place& place) -> Result<void> {
       fs::remove_all(place.trace);
       return {};
     }},
    {"file-size-limit",
     [](const Place&) -> Result<void> {
       const rlimit limit{4096, 4096};
       ::setrlimit(RLIMIT_FSIZE, &limit);
       return {};
     }},
    {"disk-full",
     [](const Place& place) -> Result<void> {
       fs::create_symlink("/dev/full", step_file(place, place.step).string() + ".tmp");
       return {};
     }},
};

using Named = std::vector<std::pair<std::string, Weight>>;

/// A GGUF loader that reads the nibbles of Q4_1 blocks two bytes early (F17).
Result<Named> load_two_bytes_early(const std::string& path) {
  CULPRIT_TRY(const auto gguf, Gguf::open(path));
  Named weights;
  for (const auto& tensor : gguf.tensors()) {
    CULPRIT_TRY(auto weight, gguf.weight(tensor.name, {.q4_1_nibble_offset = 2}));
    weights.emplace_back(tensor.name, std::move(weight));
  }
  return weights;
}

class FailingBackend : public ref::RefBackend {
 public:
  FailingBackend(std::string program, Failure failure, std::string where, int step, bool has_loader, int protocol)
      : RefBackend(std::move(program)), failure_(failure), where_(std::move(where)), step_(step), has_loader_(has_loader) {
    place_.protocol = protocol;
  }

  /// Called before the request is served.
  void see(const std::string& line) {
    const auto request = parse_json(line);
    if (!request || !request->is_object()) return;
    const auto action = request->value("do", "");
    place_.id = request->value("id", std::int64_t{0});
    if (action == where_) static_cast<void>(failure_(place_));
    armed_ = action == "run" && glob_match(where_, request->at("plan").value("name", ""));
    place_.trace = request->value("trace", "");
    place_.step = -1;
  }

  Json hello() override {
    auto hello = RefBackend::hello();
    if (has_loader_) hello["weight_sources"].push_back("engine");
    return hello;
  }
  Result<Named> load_checkpoint(const std::string& path) override { return load_two_bytes_early(path); }

  Result<kit::Array> apply(const kit::OpRequest& request) override {
    if (request.node->op == Op::embedding) ++place_.step;
    if (armed_ && place_.step == step_ && request.node->op == Op::sdpa) {
      armed_ = false;
      CULPRIT_CHECK(failure_(place_));
    }
    return RefBackend::apply(request);
  }

 private:
  Failure failure_;
  std::string where_;
  int step_;
  bool has_loader_;
  Place place_;  // requests are served one after the other, so the two threads never touch it at once
  bool armed_ = false;
};

/// Hands stdin on to `to`, line by line, each seen before.
void forward(FailingBackend& backend, int from, int to) {
  std::string line;
  char byte = 0;
  while (::read(from, &byte, 1) == 1) {
    line += byte;
    if (byte != '\n') continue;
    backend.see(line);
    if (::write(to, line.data(), line.size()) != static_cast<ssize_t>(line.size())) break;
    line.clear();
  }
  ::close(to);
}

int run(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  for (const auto& entry : kFailures) {
    if (entry.name != argv[1]) continue;
    const int from = ::dup(STDIN_FILENO), protocol = ::dup(STDOUT_FILENO);
    int requests[2];
    if (from < 0 || protocol < 0 || ::pipe(requests) != 0 || ::dup2(requests[0], STDIN_FILENO) < 0) return 1;
    FailingBackend backend(ref::program_path(argv[0]), entry.show, argv[2], std::atoi(argv[3]), argc == 5, protocol);
    std::thread([&] { forward(backend, from, requests[1]); }).detach();
    std::_Exit(kit::serve(backend));  // the other thread may still wait for requests
  }
  return 2;
}

}  // namespace
}  // namespace culprit

int main(int argc, char** argv) { return culprit::run(argc, argv); }
