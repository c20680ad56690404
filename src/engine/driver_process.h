#pragma once
// A driver process that speaks protocol version 1 on stdio (docs/protocol.md). A crash, a hang or garbage becomes an Error; stderr is kept.
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace culprit {

struct DriverCommand {
  std::vector<std::string> argv;
  std::filesystem::path work_folder;  // made if missing; holds driver.log (stderr) and tmp/ (the process's own TMPDIR)
};

class DriverProcess {
 public:
  /// Starts the process in its own process group with its own TMPDIR. Error ids: engine-start.
  [[nodiscard]] static Result<std::unique_ptr<DriverProcess>> start(const DriverCommand& command);
  /// Ends the process group: stop request is not sent here; SIGTERM, then SIGKILL.
  ~DriverProcess();
  DriverProcess(const DriverProcess&) = delete;
  DriverProcess& operator=(const DriverProcess&) = delete;

  /// Sends {"id":n,"do":action, ...fields} and waits for the `result` of that id; `progress` and `step` events go to on_event.
  /// Error ids: engine-crash (with signal or exit code and the last lines of stderr), engine-hang, engine-garbage, engine-line-limit,
  /// or the id and message of the driver's own error. After any but the last, the process is gone.
  [[nodiscard]] Result<Json> request(const std::string& action, Json fields, std::chrono::milliseconds limit,
                                     const std::function<void(const Json&)>& on_event = {});
  /// Whether the last request was answered with an error: it is of the driver, which goes on, whatever its id.
  [[nodiscard]] bool refused() const;
  [[nodiscard]] bool running() const;
  [[nodiscard]] int pid() const;
  [[nodiscard]] std::filesystem::path log() const;

 private:
  DriverProcess();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace culprit
