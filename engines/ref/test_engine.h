#pragma once
// For tests: the reference engine under the kit, with a small random model loaded.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/test_dir.h"
#include "decode/model.h"
#include "engines/kit/graph_runner.h"
#include "engines/kit/weight_set.h"
#include "engines/ref/ref_backend.h"
#include "trace/trace.h"

namespace culprit::ref {

class TestEngine {
 public:
  /// A backend of the test's own must outlive this.
  explicit TestEngine(DType dtype = DType::f32, WeightSource source = WeightSource::culprit, kit::Backend* backend = nullptr,
                      Facts facts = tiny_llama_facts())
      : backend_(backend == nullptr ? &reference_ : backend), facts_(std::move(facts)) {
    const auto model = dir_ / "model";
    if (const auto written = write_random_model(model, {.facts = facts_, .seed = 7}); !written)
      throw std::runtime_error(to_string(written.error()));
    LoadPlan plan;
    plan.model = model;
    plan.dtype = dtype;
    plan.weights = source;
    auto weights = kit::WeightSet::load(*backend_, plan);
    if (!weights) throw std::runtime_error(to_string(weights.error()));
    weights_ = std::move(*weights);
  }

  [[nodiscard]] const Facts& facts() const { return facts_; }
  [[nodiscard]] kit::WeightSet& weights() { return *weights_; }
  [[nodiscard]] kit::Backend& backend() { return *backend_; }
  [[nodiscard]] std::filesystem::path path(const std::string& name) const { return dir_ / name; }

  /// Runs a plan that must succeed.
  Trace run(const RunPlan& plan) {
    const auto folder = dir_ / ("run-" + std::to_string(runs_++));
    auto outcome = kit::run_graph(*backend_, *weights_, plan, Json::object(), folder, {});
    if (!outcome) throw std::runtime_error(to_string(outcome.error()));
    last_ = std::move(*outcome);
    auto trace = Trace::open(folder);
    if (!trace || !trace->complete()) throw std::runtime_error("the trace is not whole");
    return *std::move(trace);
  }
  [[nodiscard]] const kit::RunOutcome& last() const { return last_; }

  /// The id of the error that a plan ends with, or empty.
  std::string error_of(const RunPlan& plan) {
    const auto outcome = kit::run_graph(*backend_, *weights_, plan, Json::object(), dir_ / ("run-" + std::to_string(runs_++)), {});
    return outcome ? std::string() : outcome.error().id;
  }

 private:
  TestDir dir_;
  RefBackend reference_{"culprit-ref"};
  kit::Backend* backend_;
  Facts facts_;
  std::unique_ptr<kit::WeightSet> weights_;
  kit::RunOutcome last_;
  int runs_ = 0;
};

/// Three distinct rows of `length` tokens, fed in `chunks`.
inline RunPlan three_rows(std::vector<int> chunks) {
  RunPlan plan;
  int length = 0;
  for (const int chunk : chunks) length += chunk;
  for (int row = 0; row < 3; ++row) {
    auto& tokens = plan.sequences.emplace_back();
    for (int i = 0; i < length; ++i) tokens.push_back((11 + 37 * row + 29 * i + row * i * i) % 97);
  }
  plan.chunks = std::move(chunks);
  return plan;
}

/// The values of a tap at a step; throws when it was not recorded.
inline Tensor tensor_at(const Trace& trace, int step, const std::string& tap) {
  const auto* record = trace.find(step, tap);
  if (record == nullptr) throw std::runtime_error(tap + " was not recorded");
  auto tensor = trace.tensor(*record);
  if (!tensor) throw std::runtime_error(to_string(tensor.error()));
  return *std::move(tensor);
}

inline std::vector<double> values_at(const Trace& trace, int step, const std::string& tap) { return tensor_at(trace, step, tap).values(); }

inline std::string note_at(const Trace& trace, int step, const std::string& tap) { return trace.find(step, tap)->note; }

/// Taps whose values differ between two traces of the same schedule, as "TAP@STEP".
inline std::vector<std::string> differing(const Trace& expected, const Trace& actual) {
  std::vector<std::string> names;
  for (const auto& record : expected.records()) {
    const auto* other = actual.find(record.step, record.tap);
    if (other == nullptr || other->hash != record.hash) names.push_back(record.tap + "@" + std::to_string(record.step));
  }
  return names;
}

}  // namespace culprit::ref
