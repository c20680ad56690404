#include "engine/driver_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/error_ids.h"
#include "base/fields.h"
#include "engine/child_process.h"

namespace culprit {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLineBytesMax = std::size_t{1} << 20;  // of the protocol
constexpr std::size_t kReadBytes = std::size_t{1} << 16;
constexpr std::size_t kExcerptBytesMax = 160;
constexpr std::size_t kLogTailBytesMax = 2000;
constexpr std::size_t kLogTailLinesMax = 8;
constexpr std::chrono::milliseconds kExitPollPeriod{
    50};                                               // only matters when the driver is dead and a child of its own keeps its stdout open
constexpr std::chrono::milliseconds kExitGrace{2000};  // from the end of its stdout to its exit
constexpr std::chrono::hours kLimitMax{24 * 365};      // keeps time points in range

/// Printable ASCII as it is, all else as \xNN, so that whatever a driver printed can stand in a message.
std::string printable(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    if (c >= ' ' && c <= '~')
      text += c;
    else
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return text;
}

std::string excerpt_of(std::string_view line) {
  if (line.size() <= kExcerptBytesMax) return fmt::format("'{}'", printable(line));
  return fmt::format("'{}...' ({} bytes)", printable(line.substr(0, kExcerptBytesMax)), line.size());
}

/// The last lines that were appended to the log after `begin`, joined by " | ".
std::string tail_of(const std::filesystem::path& log, std::uintmax_t begin) {
  std::ifstream file(log, std::ios::binary | std::ios::ate);
  const auto end = file ? static_cast<std::uintmax_t>(file.tellg()) : begin;
  if (end <= begin) return {};
  const auto bytes = static_cast<std::size_t>(std::min<std::uintmax_t>(end - begin, kLogTailBytesMax));
  std::string text(bytes, '\0');
  file.seekg(static_cast<std::streamoff>(end - bytes));
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  std::vector<std::string> lines;
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (!line.empty()) lines.push_back(printable(line));
  }
  if (lines.size() > kLogTailLinesMax) lines.erase(lines.begin(), lines.end() - kLogTailLinesMax);
  return fmt::format("{}", fmt::join(lines, " | "));
}

/// These say what became of the process; a driver that is alive to answer cannot claim them.
bool is_process_error(std::string_view id) {
  constexpr std::array<std::string_view, 5> kIds = {"engine-start", "engine-crash", "engine-hang", "engine-garbage", "engine-line-limit"};
  return std::find(kIds.begin(), kIds.end(), id) != kIds.end();
}

bool is_known(std::string_view id) {
  const auto ids = error_ids();
  return std::any_of(ids.begin(), ids.end(), [&](const ErrorId& known) { return known.id == id; });
}

}  // namespace

struct DriverProcess::State {
  State(ChildProcess started, std::filesystem::path log_file, std::uintmax_t log_size)
      : child(std::move(started)), log(std::move(log_file)), log_begin(log_size) {}

  ChildProcess child;
  std::filesystem::path log;
  std::uintmax_t log_begin;  // what lies before is of another process
  std::int64_t last_id = 0;
  std::string received;   // of stdout, not yet taken as lines
  std::size_t taken = 0;  // bytes of `received` that were
  bool output_ended = false;
  std::optional<Error> gone;  // why the process is no more
  bool refused = false;       // the last request, by the driver's own answer

  enum class Event { progress, result, error };
  struct Message {
    Event event = Event::progress;
    Json json;
  };

  /// Ends the process and keeps the reason.
  tl::unexpected<Error> give_up(std::string_view id, std::string message) {
    child.end();
    if (const auto tail = tail_of(log, log_begin); !tail.empty()) message += "; its stderr ends: " + tail;
    gone = Error{std::string(id), std::move(message), log.string()};
    return tl::unexpected(*gone);
  }

  tl::unexpected<Error> garbage(std::string_view what, std::string_view line) {
    return give_up("engine-garbage", fmt::format("{}: {}", what, excerpt_of(line)));
  }

  /// Takes what stdout holds now, at most one read; true when there was something.
  bool receive() {
    if (output_ended) return false;
    if (taken > 0) received.erase(0, std::exchange(taken, 0));
    const auto size = received.size();
    received.resize(size + kReadBytes);
    const auto got = ::read(child.output(), received.data() + size, kReadBytes);
    received.resize(size + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    const bool nothing_yet = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    if (got <= 0 && !nothing_yet) output_ended = true;
    return got > 0;
  }

  [[nodiscard]] std::string_view untaken() const { return std::string_view(received).substr(taken); }

  /// The next whole line; none yet, or an error when it is longer than the protocol allows.
  Result<std::optional<std::string>> take_line() {
    const auto rest = untaken();
    const auto end = rest.find('\n');
    if (std::min(end, rest.size()) > kLineBytesMax)
      return give_up("engine-line-limit", fmt::format("a line of stdout is longer than {} bytes: {}", kLineBytesMax, excerpt_of(rest)));
    if (end == rest.npos) return std::optional<std::string>{};
    taken += end + 1;
    return std::optional(std::string(rest.substr(0, end)));
  }

  Result<Message> message_from(const std::string& line, std::int64_t id) {
    auto json = parse_json(line);
    if (!json) return garbage("stdout is not JSON", line);
    std::int64_t answered = 0;
    std::string event;
    const auto read = Fields(*json, "answer", "engine-garbage").required("id", answered).required("event", event).done(true);
    if (!read) return garbage(read.error().message, line);
    if (answered != id) return garbage(fmt::format("an answer to request {}, expected {}", answered, id), line);
    if (event == "progress" || event == "step") return Message{Event::progress, std::move(*json)};
    if (event == "result") return Message{Event::result, std::move(*json)};
    if (event == "error") return Message{Event::error, std::move(*json)};
    return garbage(fmt::format("there is no event '{}'", printable(event)), line);
  }

  Result<Json> driver_error(const Json& json, const std::string& line) {
    Error error;
    Json none = Json::object();
    const auto found = json.find("error");
    const auto read = Fields(found == json.end() ? none : *found, "error", "engine-garbage")
                          .required("id", error.id)
                          .required("message", error.message)
                          .optional("where", error.where)
                          .done(true);
    if (!read) return garbage(read.error().message, line);
    if (!is_known(error.id) || is_process_error(error.id)) {
      error.message = fmt::format("{}: {}", error.id, error.message);
      error.id = "engine-error";
    }
    refused = true;
    return tl::unexpected(std::move(error));
  }

  /// After the one answer nothing may follow. What comes later is found by the next request.
  Result<void> check_silence() {
    while (untaken().empty() && receive()) {
    }
    if (untaken().empty()) return {};
    return garbage("stdout goes on after the answer", untaken());
  }

  /// The process is dead or has closed its stdout, and all that it printed was read.
  Result<Json> ended(const std::string& action) {
    const bool exited = child.wait_for_exit(kExitGrace);
    const std::string rest(untaken());
    if (!exited) return give_up("engine-garbage", fmt::format("the driver closed its stdout without an answer to '{}'", action));
    child.end();
    if (action == "stop" && child.ending().ok() && rest.empty()) {
      gone = Error{"engine-crash", "the driver was stopped", log.string()};
      return Json::object();
    }
    auto message = fmt::format("{} before the answer to '{}'", child.ending().text(), action);
    if (!rest.empty()) message += fmt::format(", in the middle of a line: {}", excerpt_of(rest));
    return give_up("engine-crash", std::move(message));
  }

  /// Writes what fits of `unsent`, reads what there is, and waits for either until `deadline`.
  void exchange(std::string_view& unsent, Clock::time_point deadline) {
    std::array<pollfd, 2> files{};
    files[0] = {.fd = child.output(), .events = POLLIN, .revents = 0};
    nfds_t count = 1;
    if (!unsent.empty() && child.reads_input()) files[count++] = {.fd = child.input(), .events = POLLOUT, .revents = 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const auto wait = std::clamp(left, std::chrono::milliseconds{0}, kExitPollPeriod);
    if (::poll(files.data(), count, static_cast<int>(wait.count())) <= 0) return;
    if (count > 1 && files[1].revents != 0) unsent.remove_prefix(child.write_some(unsent));
    if (files[0].revents != 0) receive();
  }

  Result<Json> request(std::int64_t id, const std::string& action, std::string_view unsent, std::chrono::milliseconds limit,
                       const std::function<void(const Json&)>& on_event) {
    const auto deadline = Clock::now() + std::min<std::chrono::milliseconds>(limit, kLimitMax);
    std::optional<Json> result;  // of a stop: the driver is still to end
    while (true) {
      CULPRIT_TRY(const auto line, take_line());
      if (line) {
        if (result) return garbage("stdout goes on after the answer", *line);
        CULPRIT_TRY(auto message, message_from(*line, id));
        if (message.event == Event::progress) {
          if (on_event) on_event(message.json);
        } else if (!unsent.empty()) {
          return garbage("an answer before the whole request was read", *line);
        } else {
          CULPRIT_CHECK(check_silence());
          if (message.event == Event::error) return driver_error(message.json, *line);
          if (action != "stop") return std::move(message.json);
          result = std::move(message.json);
        }
        if (Clock::now() < deadline) continue;
      }
      if (Clock::now() >= deadline)
        return give_up("engine-hang", fmt::format("no answer to '{}' within {} ms; its process group was ended", action, limit.count()));
      if (output_ended) {
        auto answer = ended(action);
        if (answer && result) return std::move(*result);
        return answer;
      }
      // Asked before the read: what a process wrote before its exit is then in the pipe, and nothing comes after it.
      const bool exited = child.has_exited();
      exchange(unsent, deadline);
      if (exited && !receive_rest()) output_ended = true;
    }
  }

  /// Of a dead driver whose stdout somebody else still holds open: true when there was more.
  bool receive_rest() { return untaken().find('\n') != std::string_view::npos || receive(); }
};

DriverProcess::DriverProcess() = default;
DriverProcess::~DriverProcess() = default;

Result<std::unique_ptr<DriverProcess>> DriverProcess::start(const DriverCommand& command) {
  std::error_code error;
  const auto folder = std::filesystem::absolute(command.work_folder, error);
  const auto temporary = folder / "tmp";
  if (!error) std::filesystem::create_directories(temporary, error);
  if (error)
    return fail("engine-start", fmt::format("cannot create the work folder: {}", error.message()), temporary.string(), error.value());
  const auto log = folder / "driver.log";
  const auto log_size = std::filesystem::file_size(log, error);
  CULPRIT_TRY(auto child, ChildProcess::start({.argv = command.argv, .log = log, .temporary_folder = temporary}));
  std::unique_ptr<DriverProcess> process(new DriverProcess);
  process->state_ = std::make_unique<State>(std::move(child), log, error ? 0 : log_size);
  return process;
}

Result<Json> DriverProcess::request(const std::string& action, Json fields, std::chrono::milliseconds limit,
                                    const std::function<void(const Json&)>& on_event) {
  auto& state = *state_;
  state.refused = false;
  if (state.gone) return tl::unexpected(*state.gone);
  const auto id = ++state.last_id;
  Json json = {{"id", id}, {"do", action}};
  for (auto& [key, value] : fields.items()) json[key] = std::move(value);
  std::string line;
  try {
    line = json.dump();
  } catch (const nlohmann::json::exception&) {
    return fail("json-invalid", fmt::format("a field of '{}' is not UTF-8", action));
  }
  if (line.size() > kLineBytesMax)
    return fail("plan-invalid",
                fmt::format("the request '{}' has {} bytes; the protocol's limit is {}", action, line.size(), kLineBytesMax));
  line += '\n';
  CULPRIT_CHECK(state.check_silence());
  return state.request(id, action, line, limit, on_event);
}

bool DriverProcess::refused() const { return state_->refused; }
bool DriverProcess::running() const { return !state_->gone && !state_->child.has_exited(); }
int DriverProcess::pid() const { return state_->child.pid(); }
std::filesystem::path DriverProcess::log() const { return state_->log; }

}  // namespace culprit
