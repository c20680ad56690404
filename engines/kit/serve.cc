// The protocol's server side (docs/protocol.md): one request after the other, each ends with exactly one result or error.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>

#include "base/file.h"
#include "base/json.h"
#include "decode/facts_json.h"
#include "engines/kit/backend.h"
#include "engines/kit/graph_runner.h"
#include "engines/kit/weight_set.h"
#include "fault/fault.h"
#include "format/safetensors.h"

namespace culprit::kit {
namespace {

constexpr std::size_t kLineLimit = 1 << 20;  // bytes

class Server {
 public:
  Server(Backend& backend, int out) : backend_(backend), out_(out) {}

  int loop() {
    std::string line;
    while (std::getline(std::cin, line)) {
      if (line.empty()) continue;
      if (line.size() > kLineLimit) {
        answer(0, fail("engine-line-limit", fmt::format("a request of {} bytes; the limit is {}", line.size(), kLineLimit)));
        continue;
      }
      const auto request = parse_json(line, "request");
      if (!request || !request->is_object()) {
        answer(0, request ? fail("json-invalid", "a request is a JSON object") : tl::unexpected(request.error()));
        continue;
      }
      const auto id = request->value("id", 0);
      const auto action = request->value("do", "");
      if (action == "stop") {
        answer(id, Json::object());
        return 0;
      }
      try {
        answer(id, handle(id, action, *request));
      } catch (const std::exception& thrown) {  // an engine's own exceptions
        answer(id, fail("engine-error", thrown.what()));
      }
    }
    return 0;
  }

 private:
  void send(const Json& message) {
    auto text = message.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    for (std::size_t sent = 0; sent < text.size();) {
      const auto n = write(out_, text.data() + sent, text.size() - sent);
      if (n <= 0) std::_Exit(0);  // nobody listens any more
      sent += static_cast<std::size_t>(n);
    }
  }

  void answer(int id, const Result<Json>& result) {
    Json message = {{"id", id}, {"event", result ? "result" : "error"}};
    if (result)
      message.update(*result);
    else
      message["error"] = {{"id", result.error().id}, {"message", result.error().message}, {"where", result.error().where}};
    send(message);
  }

  Result<Json> handle(int id, const std::string& action, const Json& request) {
    if (action == "hello") return Json{{"hello", hello()}};
    if (action == "load") return load(request);
    if (action == "weights") return weights(request);
    if (action == "run") return run(id, request);
    if (action == "op") return op(request);
    return fail("not-supported", fmt::format("there is no request '{}'", action));
  }

  Json hello() {
    auto hello = backend_.hello();
    hello["protocol"] = 1;
    hello["interventions"] = {"exact", "variant", "replace"};
    hello["position_base"] = true;
    if (!hello.contains("weight_sources")) hello["weight_sources"] = {"culprit", "engine"};
    hello["cache_kinds"] = {"concat", "padded"};
    hello["syncs"] = {"lazy", "each_op", "each_layer"};
    hello["faults"] = Json::array();
    for (const auto& entry : fault_catalogue()) hello["faults"].push_back(entry.id);
    return hello;
  }

  Result<Json> load(const Json& request) {
    CULPRIT_TRY(const auto json, get_field<Json>(request, "plan", "load"));
    CULPRIT_TRY(const auto plan, load_plan_from_json(json));
    const auto begin = std::chrono::steady_clock::now();
    weights_.reset();
    CULPRIT_TRY(weights_, WeightSet::load(backend_, plan));
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    return Json{{"model", {{"path", plan.model.string()}, {"tensors", weights_->loaded().size()}}}, {"seconds", elapsed.count()}};
  }

  Result<Json> weights(const Json& request) {
    if (weights_ == nullptr) return fail("plan-invalid", "no model is loaded");
    CULPRIT_TRY(const auto patterns, get_field<std::vector<std::string>>(request, "names", "weights"));
    const bool values = request.value("values", false);
    Json listed = Json::array();
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const auto& [name, weight] : weights_->loaded()) {
      if (std::ranges::none_of(patterns, [&](const std::string& pattern) { return glob_match(pattern, name); })) continue;
      listed.push_back({{"name", name},
                        {"checkpoint", weights_->model().checkpoint_name(name)},
                        {"source_type", weight.source_type},
                        {"shape", weight.shape()},
                        {"hash", weight.hash_f32()}});
      if (values) tensors.emplace_back(name, weight.to_f32());
    }
    Json result = {{"weights", listed}};
    if (values) {
      CULPRIT_TRY(const auto folder, get_field<std::string>(request, "folder", "weights"));
      const auto file = std::filesystem::path(folder) / "weights.safetensors";
      CULPRIT_CHECK(write_safetensors(file, tensors));
      result["file"] = file.string();
    }
    return result;
  }

  Result<Json> run(int id, const Json& request) {
    if (weights_ == nullptr) return fail("plan-invalid", "no model is loaded");
    CULPRIT_TRY(const auto json, get_field<Json>(request, "plan", "run"));
    CULPRIT_TRY(const auto plan, run_plan_from_json(json));
    CULPRIT_TRY(const auto folder, get_field<std::string>(request, "trace", "run"));
    const auto begin = std::chrono::steady_clock::now();
    CULPRIT_TRY(const auto outcome, run_graph(backend_, *weights_, plan, hello(), folder, [&](int step) { send({{"id", id}, {"event", "step"}, {"step", step}}); }));
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    return Json{{"trace", folder}, {"steps", outcome.steps}, {"seconds", elapsed.count()}, {"argmax", outcome.argmax}};
  }

  // A tensor of the request's file, in the layout that the request asks for.
  static Result<Tensor> operand(const Safetensors& file, const std::string& key, const Json& layouts) {
    CULPRIT_TRY(auto tensor, file.tensor(key));
    if (!layouts.contains(key)) return tensor;
    const auto& wanted = layouts.at(key);
    Layout layout;
    layout.dtype = tensor.dtype();
    CULPRIT_TRY(layout.shape, get_field<Shape>(wanted, "shape", "layout"));
    CULPRIT_TRY(layout.strides, get_field<Shape>(wanted, "strides", "layout"));
    layout.offset = wanted.value("offset", std::int64_t{0});
    const auto owner = std::make_shared<Tensor>(tensor);
    return Tensor::wrap(owner, owner->contiguous_bytes(), layout);
  }

  Result<Json> op(const Json& request) {
    CULPRIT_TRY(const auto name, get_field<std::string>(request, "op", "op"));
    CULPRIT_TRY(const auto kind, parse_op(name));
    CULPRIT_TRY(const auto facts_json, get_field<Json>(request, "facts", "op"));
    CULPRIT_TRY(const auto facts, facts_from_json(facts_json));
    CULPRIT_TRY(const auto dtype_name, get_field<std::string>(request, "dtype", "op"));
    CULPRIT_TRY(const auto dtype, parse_dtype(dtype_name));
    CULPRIT_TRY(const auto in, get_field<std::string>(request, "file", "op"));
    CULPRIT_TRY(const auto out, get_field<std::string>(request, "out", "op"));
    if (kind == Op::cache_write) return fail("not-supported", "cache_write has no model-free form: it is the kit's own");
    const auto layouts = request.value("layouts", Json::object());
    CULPRIT_TRY(const auto file, Safetensors::open(in));

    Node node;
    node.op = kind;
    node.output = request.value("tap", name);
    node.heads_out = request.value("heads_out", 0);
    NodeRun run;
    run.node = &node;
    run.facts = &facts;
    run.dtype = dtype;
    run.variant = request.value("variant", "");
    const auto offered = backend_.variants(kind);
    if (run.variant.empty() && !offered.empty()) run.variant = offered.front();
    run.offset = request.value("offset", std::vector<std::int64_t>{});
    run.tokens = request.value("tokens", std::vector<std::vector<int>>{});
    run.causal = request.value("causal", false);
    run.rank = request.value("rank", 4);
    OpCall call;
    for (int i = 0; file.contains(fmt::format("input.{}", i)); ++i) {
      const auto key = fmt::format("input.{}", i);
      CULPRIT_TRY(call.inputs.emplace_back(), operand(file, key, layouts));
      CULPRIT_TRY(run.inputs.emplace_back(), backend_.from_host(call.inputs.back()));
      node.inputs.push_back(key);
    }
    BackendWeight weight;
    if (file.contains("weight")) {
      CULPRIT_TRY(call.context.weight, operand(file, "weight", layouts));
      CULPRIT_TRY(weight.dense, backend_.from_host(call.context.weight));
      run.weight = &weight;
    }
    CULPRIT_TRY(auto output, run_node(backend_, run));
    CULPRIT_TRY(call.result, backend_.to_host(output));
    call.node = &node;
    call.dtype = dtype;
    call.collapsed_rank = run.rank;
    call.per_row_offset = run.offset.size() > 1;
    call.context.facts = &facts;
    call.context.tokens = run.tokens;
    place(call, run.offset);
    for (const auto& text : request.value("faults", std::vector<std::string>{})) {
      CULPRIT_TRY(const auto spec, FaultSpec::parse(text));
      CULPRIT_TRY(auto broken, apply_fault(spec, call));
      if (broken) call.result = std::move(*broken);
    }
    CULPRIT_CHECK(write_safetensors(out, {{"output", call.result}}));
    const auto& layout = call.result.layout();
    return Json{{"out", out}, {"layout", {{"dtype", name_of(layout.dtype)}, {"shape", layout.shape}, {"strides", layout.strides}, {"offset", layout.offset}}}};
  }

  // Positions of an op on heads: token t of row r at offset[r] + t; the cache holds what the last input's slots say, ending with these tokens.
  static void place(OpCall& call, const std::vector<std::int64_t>& offset) {
    if (call.inputs.empty() || call.inputs[0].rank() != 4) return;
    const auto rows = call.inputs[0].dim(0), tokens = call.inputs[0].dim(2);
    const auto slots = call.node->op == Op::sdpa && call.inputs.size() > 1 ? call.inputs[1].dim(2) : tokens;
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto first = offset.empty() ? slots - tokens : offset[offset.size() == 1 ? 0 : static_cast<std::size_t>(row)];
      call.context.at.sequence.push_back(static_cast<int>(row));
      auto& positions = call.context.at.position.emplace_back();
      auto& slot = call.context.at.slot.emplace_back();
      for (std::int64_t i = tokens - slots; i < tokens; ++i) slot.push_back(first + i);
      for (std::int64_t i = 0; i < tokens; ++i) positions.push_back(first + i);
    }
  }

  Backend& backend_;
  int out_;
  std::unique_ptr<WeightSet> weights_;
};

}  // namespace

int serve(Backend& backend) {
  // The protocol gets a descriptor of its own: an engine that prints reaches the log, not the protocol.
  const int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 1;
  return Server(backend, out).loop();
}

}  // namespace culprit::kit
