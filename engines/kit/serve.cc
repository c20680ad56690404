// The protocol's server side (docs/protocol.md): one request after the other, each ends with exactly one result or error.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <exception>
#include <optional>

#include "base/descriptor.h"
#include "base/fields.h"
#include "base/file.h"
#include "base/json.h"
#include "decode/cache_spec.h"
#include "engines/kit/backend.h"
#include "engines/kit/graph_runner.h"
#include "engines/kit/line_channel.h"
#include "engines/kit/op_request.h"
#include "engines/kit/weight_set.h"
#include "fault/fault.h"
#include "format/safetensors.h"

namespace culprit::kit {
namespace {

constexpr int kProtocol = 1;

class Server {
 public:
  Server(Backend& backend, int in, int out) : backend_(backend), channel_(in, out) {}

  int loop() {
    std::string line;
    while (listened_to_) {
      const auto read = channel_.read_line(line);
      if (read == LineChannel::Read::end) return 0;
      if (read == LineChannel::Read::too_long) {
        answer(0, fail("json-invalid", fmt::format("a request is longer than {} bytes", kLineLimit)));
        continue;
      }
      if (line.empty()) continue;
      if (handle_line(line) == Next::stop) return 0;
    }
    return 0;
  }

 private:
  enum class Next { request, stop };

  Next handle_line(const std::string& line) {
    std::int64_t id = 0;
    std::string action;
    const auto request = parse_json(line, "request");
    if (!request) {
      answer(id, tl::unexpected(request.error()));
      return Next::request;
    }
    // The id is read by itself, so that a request that is wrong otherwise can still be answered under it.
    if (request->is_object() && request->contains("id")) static_cast<void>(read_json(request->at("id"), id));
    if (auto read = Fields(*request, "request", "json-invalid").required("id", id).required("do", action).done(true); !read) {
      answer(id, tl::unexpected(std::move(read).error()));
      return Next::request;
    }
    if (action == "stop") {
      answer(id, Json::object());
      return Next::stop;
    }
    answer(id, handle_guarded(id, action, *request));
    return Next::request;
  }

  // Whatever an engine throws ends the request, not the driver.
  Result<Json> handle_guarded(std::int64_t id, const std::string& action, const Json& request) {
    try {
      return handle(id, action, request);
    } catch (const std::exception& thrown) {
      return fail("engine-error", thrown.what(), action);
    } catch (...) {
      return fail("engine-error", "the engine threw something that is no std::exception", action);
    }
  }

  Result<Json> handle(std::int64_t id, const std::string& action, const Json& request) {
    if (action == "hello") return hello(request);
    if (action == "load") return load(request);
    if (action == "weights") return weights(request);
    if (action == "run") return run(id, request);
    if (action == "op") return answer_op(backend_, request);
    return fail("not-supported", fmt::format("there is no request '{}'; expected hello, load, weights, run, op or stop", action));
  }

  // Engines' messages may hold bytes that are no UTF-8.
  static std::string to_line(const Json& message) { return message.dump(-1, ' ', false, Json::error_handler_t::replace); }

  void send(std::string_view line) { listened_to_ = channel_.write_line(line) && listened_to_; }

  void answer(std::int64_t id, const Result<Json>& result) {
    if (!result) {
      auto message = result.error().message;
      if (message.size() > kLineLimit / 8) message.resize(kLineLimit / 8);  // escaped, it still fits a line
      send(to_line(
          {{"id", id}, {"event", "error"}, {"error", {{"id", result.error().id}, {"message", message}, {"where", result.error().where}}}}));
      return;
    }
    Json message = {{"id", id}, {"event", "result"}};
    message.update(*result);
    const auto line = to_line(message);
    if (line.size() > kLineLimit)
      return answer(id, fail("engine-line-limit", fmt::format("the answer has {} bytes; a line may have {}", line.size(), kLineLimit)));
    send(line);
  }

  // Made once: it hashes the engine's library.
  Json& described() {
    if (hello_) return *hello_;
    auto hello = backend_.hello();
    hello["protocol"] = kProtocol;
    hello["interventions"] = Json::array({"exact", "variant", "replace", "keep"});
    hello["position_base"] = true;
    if (!hello.contains("weight_sources")) hello["weight_sources"] = Json::array({"culprit", "engine"});
    hello["cache_kinds"] = Json::array();
    for (const auto kind : cache_kind_names())
      if (kind != "quantized" || backend_.quantises()) hello["cache_kinds"].push_back(kind);
    hello["syncs"] = Json::array({"lazy", "each_op", "each_layer", "async"});
    hello["faults"] = Json::array();
    for (const auto& entry : fault_catalogue()) hello["faults"].push_back(entry.id);
    hello_ = std::move(hello);
    return *hello_;
  }

  Result<Json> hello(const Json& request) {
    int protocol = 0;
    CULPRIT_CHECK(Fields(request, "hello", "json-invalid").required("protocol", protocol).done(true));
    if (protocol != kProtocol) return fail("not-supported", fmt::format("this driver speaks protocol {}, not {}", kProtocol, protocol));
    return Json{{"hello", described()}};
  }

  Result<Json> load(const Json& request) {
    CULPRIT_TRY(const auto json, get_field<Json>(request, "plan", "load"));
    CULPRIT_TRY(const auto plan, load_plan_from_json(json));
    const auto& dtypes = described()["dtypes"];
    if (std::ranges::find(dtypes, Json(name_of(plan.dtype))) == dtypes.end())
      return fail("not-supported", fmt::format("the engine does not run in {}; it offers {}", name_of(plan.dtype), dtypes.dump()));
    const auto begin = std::chrono::steady_clock::now();
    weights_.reset();  // two models at once may not fit
    CULPRIT_TRY(weights_, WeightSet::load(backend_, plan));
    return Json{{"model", {{"path", plan.model.string()}, {"tensors", weights_->loaded().size()}}}, {"seconds", seconds_since(begin)}};
  }

  Result<Json> weights(const Json& request) {
    if (weights_ == nullptr) return fail("plan-invalid", "no model is loaded");
    std::vector<std::string> globs;
    std::filesystem::path folder;
    bool values = false;
    CULPRIT_CHECK(Fields(request, "weights", "json-invalid")
                      .required("names", globs)
                      .optional("values", values)
                      .optional("folder", folder)
                      .done(true));
    if (values && folder.empty()) return fail("json-invalid", "weights: values are wanted, but no folder is named");
    Json listed = Json::array();
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const auto& item : weights_->loaded()) {
      const auto& name = item.first;
      const auto& weight = item.second;
      if (std::ranges::none_of(globs, [&](const std::string& glob) { return glob_match(glob, name); })) continue;
      listed.push_back({{"name", name},
                        {"checkpoint", weights_->model().checkpoint_name(name)},
                        {"source_type", weight.source_type},
                        {"shape", weight.shape()},
                        {"hash", weight.hash_f32()}});
      if (values) tensors.emplace_back(name, weight.to_f32());
    }
    Json result = {{"weights", listed}};
    if (values) {
      const auto file = folder / "weights.safetensors";
      CULPRIT_CHECK(write_safetensors(file, tensors));
      result["file"] = file.string();
    }
    return result;
  }

  Result<Json> run(std::int64_t id, const Json& request) {
    if (weights_ == nullptr) return fail("plan-invalid", "no model is loaded");
    CULPRIT_TRY(const auto json, get_field<Json>(request, "plan", "run"));
    CULPRIT_TRY(const auto plan, run_plan_from_json(json));
    CULPRIT_TRY(const auto folder, get_field<std::string>(request, "trace", "run"));
    const auto begin = std::chrono::steady_clock::now();
    const auto on_step = [&](int step) { send(to_line({{"id", id}, {"event", "step"}, {"step", step}})); };
    CULPRIT_TRY(const auto outcome, run_graph(backend_, *weights_, plan, described(), folder, on_step));
    return Json{{"trace", folder}, {"steps", outcome.steps}, {"seconds", seconds_since(begin)}, {"argmax", outcome.argmax}};
  }

  static double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  Backend& backend_;
  LineChannel channel_;
  bool listened_to_ = true;
  std::optional<Json> hello_;
  std::unique_ptr<WeightSet> weights_;
};

}  // namespace

int serve(Backend& backend, int in, int out) { return Server(backend, in, out).loop(); }

int serve(Backend& backend) {
  // The protocol gets a descriptor of its own: an engine that prints reaches the log, not the protocol.
  const Descriptor out(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is then an error of the write, which is answered as engine-disk
  if (!out || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 1;
  return serve(backend, STDIN_FILENO, out.get());
}

}  // namespace culprit::kit
