#include "locate/op_scan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <optional>

#include "audit/bounded.h"
#include "decode/facts_json.h"
#include "format/safetensors.h"

namespace culprit {
namespace {

/// A recorded single-token input of a bad output, to be fed to the op alone.
struct Sample {
  Tensor input;
  const Node* node = nullptr;
  int rank = 4;
  bool per_row = false;
};

Result<std::optional<Sample>> bad_single_token(const Model& model, const Exploration& exploration) {
  for (const auto& run : exploration.runs)
    for (const auto& op : run.report.ops) {
      const auto& node = model.graph().nodes()[static_cast<std::size_t>(op.node)];
      if (node.op != Op::rope || op.judgement != Judgement::corruption) continue;
      const auto* record = run.made.trace->find(op.step, node.inputs[0]);
      if (record == nullptr || record->at.tokens() != 1) continue;
      Sample sample;
      CULPRIT_TRY(sample.input, run.made.trace->tensor(*record));
      sample.node = &node;
      const auto& variants = run.arm.plan.variants;
      if (const auto rank = variants.find("rope.rank"); rank != variants.end() && rank->second == "3") sample.rank = 3;
      if (const auto offset = variants.find("rope.offset"); offset != variants.end()) sample.per_row = offset->second == "per_row";
      return sample;
    }
  return std::nullopt;
}

// Whether the op is outside its bound at `position`.
Result<bool> wrong_at(Session& session, const Model& model, const Sample& sample, const Tensor& input,
                      const std::vector<FaultSpec>& planted, std::int64_t position) {
  const auto in = session.work() / "scan-in.safetensors", out = session.work() / "scan-out.safetensors";
  Json faults = Json::array();
  for (const auto& fault : planted) faults.push_back(fault.text());
  const auto rows = input.dim(0);
  std::vector<std::int64_t> offset(sample.per_row ? static_cast<std::size_t>(rows) : 1, position);
  CULPRIT_TRY(const auto answer, session.op({{"op", "rope"},
                                             {"tap", sample.node->output},
                                             {"facts", to_json(model.facts())},
                                             {"dtype", name_of(input.dtype())},
                                             {"file", in.string()},
                                             {"offset", offset},
                                             {"rank", sample.rank},
                                             {"rope_local", sample.node->rope_local},
                                             {"faults", faults},
                                             {"out", out.string()}}));
  (void)answer;
  CULPRIT_TRY(const auto observed, Session::op_output(out));
  NodeContext context;
  context.facts = &model.facts();
  for (std::int64_t row = 0; row < rows; ++row) {
    context.at.sequence.push_back(static_cast<int>(row));
    context.at.position.push_back({position});
  }
  CULPRIT_TRY(const auto right, bounded_node(*sample.node, {to_array(input)}, context, input.dtype(), {}));
  const auto values = observed.values();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!(std::abs(values[i] - right.value.values[i]) <= right.bound[i])) return true;
  return false;
}

}  // namespace

Result<OpScan> scan_rope(Session& session, const Model& model, const Exploration& exploration, const std::vector<FaultSpec>& planted,
                         DType dtype) {
  OpScan scan;
  CULPRIT_TRY(const auto sample, bad_single_token(model, exploration));
  if (!sample) return scan;
  // Every position up to 300, then some that 11 bits of mantissa cannot hold, and those beside powers of two, where an index may wrap.
  std::vector<std::int64_t> positions;
  for (std::int64_t p = 0; p <= 300; ++p) positions.push_back(p);
  for (const std::int64_t p : {511, 512, 513, 1021, 1023, 1024, 2047, 2048, 2049, 4095, 4096, 4099, 8191, 8192, 8195, 16383, 16384, 16387})
    positions.push_back(p);

  std::map<DType, std::optional<std::int64_t>> smallest;
  for (const auto tried : {DType::f32, DType::bf16, DType::f16}) {
    const auto input = sample->input.cast(tried);
    CULPRIT_CHECK(write_safetensors(session.work() / "scan-in.safetensors", {{"input.0", input}}));
    auto& first = smallest[tried];
    std::optional<std::int64_t> right;  // the last before that
    for (const auto position : positions) {
      CULPRIT_TRY(const bool wrong, wrong_at(session, model, *sample, input, planted, position));
      if (!wrong) {
        right = position;
        continue;
      }
      first = position;
      break;
    }
    scan.notes.push_back(
        first ? fmt::format("op alone, {}: wrong from position {} on{}", name_of(tried), *first,
                            right ? fmt::format(", right at {}", *right) : "")
              : fmt::format("op alone, {}: right at every position tried (0 to 300, and up to {})", name_of(tried), positions.back()));
  }
  if (!smallest[dtype]) return scan;
  std::vector<std::string_view> wrong_dtypes;
  for (const auto& [tried, first] : smallest)
    if (first) wrong_dtypes.push_back(name_of(tried));
  scan.tried = true;
  std::vector<std::string> predicates;
  const bool of_dtype = wrong_dtypes.size() < smallest.size();
  if (of_dtype) predicates.push_back(fmt::format("dtype {}", fmt::join(wrong_dtypes, " or ")));
  if (*smallest[dtype] > 0)
    predicates.push_back(fmt::format("position >= {}{}", *smallest[dtype], of_dtype ? fmt::format(" (in {})", name_of(dtype)) : ""));
  scan.condition = fmt::format("{}", fmt::join(predicates, " and "));
  return scan;
}

}  // namespace culprit
