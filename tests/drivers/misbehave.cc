// A driver that answers well until it is told not to: argv[1] is a behaviour of the list below, shown at the second request.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>

namespace {

void say(std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written <= 0) ::_exit(99);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::string event(const std::string& id, const std::string& name, const std::string& more = "") {
  return "{\"id\":" + id + ",\"event\":\"" + name + "\"" + more + "}\n";
}

[[noreturn]] void sleep_for_ever() {
  while (true) ::pause();
}

/// The grandchild holds a lock on the file argv[2] as long as it lives, in all its forms.
void start_grandchild(const char* lock_file) {
  if (::fork() != 0) {
    while (::access((std::string(lock_file) + ".ready").c_str(), F_OK) != 0) ::usleep(1000);
    return;
  }
  const int lock = ::open(lock_file, O_RDWR | O_CREAT, 0600);
  if (::flock(lock, LOCK_EX) != 0) ::_exit(1);
  ::signal(SIGTERM, SIG_IGN);
  std::ofstream(std::string(lock_file) + ".ready") << ::getpid() << '\n';
  sleep_for_ever();
}

using Behaviour = void (*)(const std::string& id, const std::string& request, const char* file);
struct Entry {
  std::string_view name;
  Behaviour show;
};

const Entry kBehaviours[] = {
    {"ok", [](const auto& id, const auto& request, auto) { say(event(id, "result", ",\"bytes\":" + std::to_string(request.size()))); }},
    {"crash",
     [](const auto&, const auto&, auto) {
       std::fputs("first line\nthe last words\n", stderr);
       ::exit(3);
     }},
    {"segfault",
     [](const auto&, const auto&, auto) {
       const rlimit none{0, 0};
       ::setrlimit(RLIMIT_CORE, &none);
       ::signal(SIGSEGV, SIG_DFL);  // a sanitizer has its own
       ::raise(SIGSEGV);
     }},
    {"hang", [](const auto&, const auto&, auto) { sleep_for_ever(); }},
    {"hang-with-grandchild",
     [](const auto& id, const auto&, auto file) {
       static bool started = false;
       if (started) sleep_for_ever();
       start_grandchild(file);
       started = true;
       say(event(id, "result"));
     }},
    {"crash-with-grandchild",
     [](const auto&, const auto&, auto file) {
       start_grandchild(file);  // which keeps our stdout open
       ::exit(5);
     }},
    {"answer-with-grandchild",
     [](const auto& id, const auto&, auto file) {
       start_grandchild(file);
       say(event(id, "result"));
     }},
    {"ignore-sigterm",
     [](const auto&, const auto&, auto) {
       ::signal(SIGTERM, SIG_IGN);
       sleep_for_ever();
     }},
    {"garbage", [](const auto&, const auto&, auto) { say("Loading model... 100%\n"); }},
    {"not-utf8", [](const auto& id, const auto&, auto) { say(event(id, "progress", ",\"text\":\"\xff\xfe\"")); }},
    {"deep", [](const auto&, const auto&, auto) { say(std::string(500'000, '[') + std::string(500'000, ']') + "\n"); }},
    {"longest-line",
     [](const auto& id, const auto&, auto) {
       const std::size_t limit = std::size_t{1} << 20;
       const auto frame = event(id, "result", ",\"text\":\"\"").size() - 1;  // without its newline
       say(event(id, "result", ",\"text\":\"" + std::string(limit - frame, 'x') + "\""));
     }},
    {"long-line",
     [](const auto& id, const auto&, auto) {
       const std::size_t limit = std::size_t{1} << 20;
       const auto frame = event(id, "result", ",\"text\":\"\"").size() - 1;
       say(event(id, "result", ",\"text\":\"" + std::string(limit - frame + 1, 'x') + "\""));
     }},
    {"endless-line",
     [](const auto&, const auto&, auto) {
       while (true) say(std::string(4096, 'x'));
     }},
    {"endless-progress",
     [](const auto& id, const auto&, auto) {
       while (true) say(event(id, "progress"));
     }},
    {"wrong-id", [](const auto& id, const auto&, auto) { say(event(id + "0", "result")); }},
    {"no-id", [](const auto&, const auto&, auto) { say("{\"event\":\"result\"}\n"); }},
    {"no-event", [](const auto& id, const auto&, auto) { say("{\"id\":" + id + "}\n"); }},
    {"unknown-event", [](const auto& id, const auto&, auto) { say(event(id, "resultt")); }},
    {"two-results", [](const auto& id, const auto&, auto) { say(event(id, "result") + event(id, "result")); }},
    {"late-second-result",
     [](const auto& id, const auto&, auto file) {
       say(event(id, "result"));
       ::usleep(50'000);
       say(event(id, "result"));
       std::ofstream(std::string(file) + ".ready") << '\n';
     }},
    {"exit-0-before-answer", [](const auto&, const auto&, auto) { ::exit(0); }},
    {"exit-after-answer",
     [](const auto& id, const auto&, auto) {
       say(event(id, "result"));
       ::exit(0);
     }},
    {"close-stdout",
     [](const auto&, const auto&, auto) {
       ::close(STDOUT_FILENO);
       sleep_for_ever();
     }},
    {"close-stdin",
     [](const auto& id, const auto&, auto) {
       ::close(STDIN_FILENO);
       say(event(id, "result"));
       sleep_for_ever();
     }},
    {"error-event",
     [](const auto& id, const auto&, auto) {
       say(event(id, "error", R"(,"error":{"id":"not-supported","message":"no variant 'x'","where":"layers.0.q"})"));
     }},
    {"unknown-error",
     [](const auto& id, const auto&, auto) { say(event(id, "error", R"(,"error":{"id":"MyError","message":"it broke"})")); }},
    {"claims-hang", [](const auto& id, const auto&, auto) { say(event(id, "error", R"(,"error":{"id":"engine-hang","message":"me"})")); }},
    {"bare-error", [](const auto& id, const auto&, auto) { say(event(id, "error")); }},
    {"flood-stderr",
     [](const auto& id, const auto&, auto) {
       for (int line = 0; line < 40'000; ++line) std::fprintf(stderr, "%0100d\n", line);
       say(event(id, "result"));
     }},
    {"partial-line-then-exit",
     [](const auto& id, const auto&, auto) {
       say(event(id, "result").substr(0, 10));
       ::exit(0);
     }},
    {"slow-but-in-time",
     [](const auto& id, const auto&, auto) {
       const auto answer = event(id, "result");
       for (const char c : answer) {
         ::usleep(5000);
         say(std::string(1, c));
       }
     }},
    {"progress-events",
     [](const auto& id, const auto&, auto) {
       for (int step = 0; step < 1000; ++step) say(event(id, step % 2 == 0 ? "progress" : "step", ",\"n\":" + std::to_string(step)));
       say(event(id, "result"));
     }},
    {"answer-before-reading", [](const auto&, const auto&, auto) {}},  // in main
    {"temporary-folder",
     [](const auto& id, const auto&, auto) { say(event(id, "result", ",\"tmpdir\":\"" + std::string(std::getenv("TMPDIR")) + "\"")); }},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::string_view wanted = argv[1];
  const Entry* entry = nullptr;
  for (const auto& known : kBehaviours)
    if (known.name == wanted) entry = &known;
  if (entry == nullptr) return 2;
  const bool quick = wanted == "answer-before-reading";
  std::string line;
  for (int number = 1;; ++number) {
    if (quick && number == 2) {
      char byte = 0;  // the first of the request: it is under way
      if (::read(STDIN_FILENO, &byte, 1) != 1) return 1;
      say(event("2", "result"));
      sleep_for_ever();
    }
    line.clear();
    char byte = 0;
    while (::read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n') line += byte;
    if (byte != '\n') return 0;  // end of input
    if (line.find("\"do\":\"stop\"") != line.npos) {
      if (wanted == "crash") return 7;
      return 0;
    }
    const auto begin = line.find("\"id\":") + 5;
    const auto id = line.substr(begin, line.find_first_of(",}", begin) - begin);
    if (number == 1)
      say(event(id, "result"));
    else
      entry->show(id, line, argc > 2 ? argv[2] : nullptr);
  }
}
