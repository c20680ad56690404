#include "engines/kit/op_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/fields.h"
#include "decode/architecture.h"
#include "decode/facts_json.h"
#include "engines/kit/attention_mask.h"
#include "engines/kit/call_check.h"
#include "engines/kit/graph_runner.h"
#include "fault/fault.h"
#include "format/safetensors.h"

namespace culprit::kit {
namespace {

/// The request's fields, checked but for the operands.
struct OpFields {
  Op op = Op::add;
  std::string tap;
  std::string variant;
  Facts facts;
  DType dtype = DType::f32;
  std::filesystem::path file;
  std::filesystem::path out;
  Json layouts = Json::object();
  std::vector<std::int64_t> offset;
  std::vector<std::vector<int>> tokens;
  bool causal = false;
  int rank = 4;
  Node node;  // its parameters
  std::vector<FaultSpec> faults;
};

Result<OpFields> read_fields(Backend& backend, const Json& request) {
  OpFields read;
  std::string name, dtype;
  std::vector<std::string> faults;
  Fields fields(request, "op request", "plan-invalid");
  fields.required("op", name)
      .required("dtype", dtype)
      .required("file", read.file)
      .required("out", read.out)
      .optional("tap", read.tap)
      .optional("variant", read.variant)
      .optional("offset", read.offset)
      .optional("tokens", read.tokens)
      .optional("causal", read.causal)
      .optional("rank", read.rank)
      .optional("heads_out", read.node.heads_out)
      .optional("unit_offset", read.node.unit_offset)
      .optional("rope_local", read.node.rope_local)
      .optional("window", read.node.window)
      .optional("factor", read.node.factor)
      .optional("begin", read.node.begin)
      .optional("channels", read.node.channels)
      .optional("experts", read.node.experts)
      .optional("normalised", read.node.normalised)
      .optional("precise", read.node.precise)
      .optional("unscaled", read.node.unscaled)
      .optional("head", read.node.head)
      .optional("faults", faults);
  const auto* facts = fields.find("facts");
  if (const auto* layouts = fields.find("layouts")) read.layouts = *layouts;
  static_cast<void>(fields.find("id"));  // the envelope
  static_cast<void>(fields.find("do"));
  CULPRIT_CHECK(fields.done());
  if (facts == nullptr) return fail("plan-invalid", "op request: field 'facts' is missing");
  if (!read.layouts.is_object()) return fail("plan-invalid", "op request: field 'layouts' is not an object");
  CULPRIT_TRY(read.facts, facts_from_json(*facts));
  CULPRIT_CHECK(check_facts(read.facts));
  CULPRIT_TRY(read.op, parse_op(name));
  CULPRIT_TRY(read.dtype, parse_dtype(dtype));
  if (!is_float(read.dtype)) return fail("plan-invalid", fmt::format("ops do not run in {}", dtype));
  if (read.tap.empty()) read.tap = name;
  for (const auto& text : faults) {
    CULPRIT_TRY(read.faults.emplace_back(), FaultSpec::parse(text));
  }
  if (read.op == Op::cache_write) return read;  // the kit's own, it has no variants
  const auto offered = backend.variants(read.op);
  if (read.variant.empty() && !offered.empty()) read.variant = offered.front();
  if (std::ranges::find(offered, read.variant) == offered.end())
    return fail("not-supported", fmt::format("{} has no variant '{}'; the engine offers {}", name, read.variant, fmt::join(offered, ", ")));
  if (read.variant == "quantized")
    return fail("not-supported", "an op request holds no packed weight, so it cannot run the variant 'quantized'");
  return read;
}

/// A tensor of the request's file, in the layout that the request asks for.
Result<Tensor> operand(const Safetensors& file, const std::string& key, const Json& layouts) {
  CULPRIT_TRY(auto tensor, file.tensor(key));
  if (!layouts.contains(key)) return tensor;
  Layout layout;
  layout.dtype = tensor.dtype();
  CULPRIT_CHECK(Fields(layouts.at(key), "layout of " + key, "plan-invalid")
                    .required("shape", layout.shape)
                    .required("strides", layout.strides)
                    .optional("offset", layout.offset)
                    .done());
  const auto owner = std::make_shared<const Tensor>(std::move(tensor));
  return Tensor::wrap(owner, owner->contiguous_bytes(), std::move(layout));
}

/// Token t of row r is at offset[r] + t; without an offset the tokens are the last of the cache, whose first slot is at 0.
Coordinates coordinates_of(const OpCall& call, const std::vector<std::int64_t>& offset) {
  Coordinates at;
  if (call.inputs.empty() || call.inputs[0].rank() != 4) return at;
  const auto rows = call.inputs[0].dim(0), tokens = call.inputs[0].dim(2);
  auto slots = tokens;
  if (call.node->op == Op::sdpa) slots = call.inputs[1].dim(2);
  if (call.node->op == Op::cache_write && call.context.cache.rank() == 4) slots += call.context.cache.dim(2);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto first = offset.empty() ? slots - tokens : offset[offset.size() == 1 ? 0 : static_cast<std::size_t>(row)];
    at.sequence.push_back(static_cast<int>(row));
    auto& positions = at.position.emplace_back();
    auto& slot = at.slot.emplace_back();
    for (std::int64_t i = tokens - slots; i < tokens; ++i) slot.push_back(first + i);
    for (std::int64_t i = 0; i < tokens; ++i) positions.push_back(first + i);
  }
  return at;
}

Result<OpCall> read_operands(const Safetensors& file, const OpFields& fields, Node& node) {
  OpCall call;
  call.node = &node;
  call.dtype = fields.dtype;
  call.collapsed_rank = fields.rank;
  call.per_row_offset = fields.offset.size() > 1;
  call.context.facts = &fields.facts;
  call.context.dtype = fields.dtype;
  call.context.tokens = fields.tokens;
  for (int i = 0; file.contains(fmt::format("input.{}", i)); ++i) {
    node.inputs.push_back(fmt::format("input.{}", i));
    CULPRIT_TRY(call.inputs.emplace_back(), operand(file, node.inputs.back(), fields.layouts));
  }
  if (file.contains("weight")) {
    node.weight = "weight";
    CULPRIT_TRY(call.context.weight, operand(file, "weight", fields.layouts));
  }
  if (file.contains("bias")) {
    node.bias = "bias";
    CULPRIT_TRY(call.context.bias, operand(file, "bias", fields.layouts));
  }
  if (node.op == Op::cache_write && call.inputs.size() == 2) {  // the cache before the write, then what is written
    call.context.cache = call.inputs[0];
    call.inputs.erase(call.inputs.begin());
    node.inputs.erase(node.inputs.begin());
  }
  for (const auto& [key, layout] : fields.layouts.items())
    if (!file.contains(key)) return fail("plan-invalid", fmt::format("a layout is given of '{}', which is no operand", key));
  return call;
}

Result<Array> run_call(Backend& backend, const OpFields& fields, const OpCall& call) {
  NodeRun run;
  run.node = call.node;
  run.facts = &fields.facts;
  run.variant = fields.variant;
  run.dtype = fields.dtype;
  run.tokens = fields.tokens;
  run.offset = fields.offset;
  run.causal = fields.causal;
  run.rank = fields.rank;
  for (const auto& input : call.inputs) {
    CULPRIT_TRY(run.inputs.emplace_back(), backend.from_host(input));
  }
  if (call.node->op == Op::sdpa) {
    CULPRIT_TRY(run.mask, attention_mask(backend, call.context.at, call.node->window));
  }
  if (call.node->op == Op::cache_write) {
    if (call.context.cache.rank() == 0) return run.inputs[0];
    CULPRIT_TRY(const auto cache, backend.from_host(call.context.cache));
    return backend.concatenate(std::vector{cache, run.inputs[0]}, 2);
  }
  BackendWeight weight;
  if (call.context.weight.rank() > 0) {
    CULPRIT_TRY(weight.dense, backend.from_host(call.context.weight));
    run.weight = &weight;
  }
  if (call.context.bias.rank() > 0) {
    CULPRIT_TRY(run.bias, backend.from_host(call.context.bias));
  }
  return run_node(backend, run);
}

}  // namespace

Result<Json> answer_op(Backend& backend, const Json& request) {
  CULPRIT_TRY(const auto fields, read_fields(backend, request));
  CULPRIT_TRY(const auto file, Safetensors::open(fields.file));
  Node node = fields.node;
  node.op = fields.op;
  node.output = fields.tap;
  CULPRIT_TRY(auto call, read_operands(file, fields, node));
  CULPRIT_CHECK(check_operands(call, fields.offset));
  call.context.at = coordinates_of(call, fields.offset);

  CULPRIT_TRY(const auto output, run_call(backend, fields, call));
  CULPRIT_TRY(call.result, backend.to_host(output));
  for (const auto& spec : fields.faults) {
    CULPRIT_TRY(auto broken, apply_fault(spec, call));
    if (broken) call.result = std::move(*broken);
  }
  CULPRIT_CHECK(write_safetensors(fields.out, {{"output", call.result}}));
  const auto& layout = call.result.layout();
  return Json{
      {"out", fields.out.string()},
      {"layout", {{"dtype", name_of(layout.dtype)}, {"shape", layout.shape}, {"strides", layout.strides}, {"offset", layout.offset}}}};
}

}  // namespace culprit::kit
