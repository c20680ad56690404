// Weights from an engine's own loader, and their packed form.
#include "engines/kit/weight_set.h"

#include <cstring>

#include "engines/ref/test_engine.h"

namespace culprit::ref {
namespace {

/// An engine whose loader returns what it is told to.
class Loader : public RefBackend {
 public:
  Loader() : RefBackend("culprit-ref") {}
  Result<std::vector<std::pair<std::string, Weight>>> load_checkpoint(const std::string& path) override {
    CULPRIT_TRY(const auto model, Model::open(path));
    std::vector<std::pair<std::string, Weight>> tensors;
    for (const auto& name : model.weight_names()) {
      if (name == missing) continue;
      CULPRIT_TRY(auto weight, model.weight(name));
      if (name == transposed) weight.dense = weight.dense.transposed(0, 1).copy();
      if (quantise && weight.dense.rank() == 2) weight = four_bits(weight.dense.shape());
      tensors.emplace_back(model.checkpoint_name(name), std::move(weight));
    }
    tensors.emplace_back("rope_freqs.weight", Weight{});  // what the graph does not know is left alone
    return tensors;
  }

  std::string missing, transposed;
  bool quantise = false;

 private:
  /// Made-up integers in groups of 8, scales and biases in f16.
  static Weight four_bits(const Shape& shape) {
    const auto rows = shape[0], columns = shape[1];
    Weight weight;
    weight.bits = 4;
    weight.group = 8;
    weight.source_type = "made up";
    weight.packed = Tensor::zeros(DType::u32, {rows, columns / 8});
    auto bytes = weight.packed.mutable_bytes();
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((i * 131 + i / 7 * 17) % 251);
    std::vector<double> scales(static_cast<std::size_t>(rows * columns / 8)), biases(scales.size());
    for (std::size_t i = 0; i < scales.size(); ++i) {
      scales[i] = 0.02 + 0.001 * static_cast<double>(i % 13);
      biases[i] = -0.17 - 0.002 * static_cast<double>(i % 11);
    }
    weight.scales = Tensor::from_values(DType::f16, {rows, columns / 8}, scales);
    weight.biases = Tensor::from_values(DType::f16, {rows, columns / 8}, biases);
    return weight;
  }
};

TEST(WeightSet, TakesWhatTheEnginesLoaderReturns) {
  Loader loader;
  TestEngine own(DType::f32, WeightSource::engine, &loader), handed_in(DType::f32);
  EXPECT_EQ(own.weights().loaded().size(), own.weights().model().weight_names().size());
  EXPECT_EQ(differing(handed_in.run(three_rows({3, 1})), own.run(three_rows({3, 1}))), std::vector<std::string>{});
}

TEST(WeightSet, RefusesALoaderThatLeavesOutOrReshapesAWeight) {
  const auto error_of = [](Loader& loader, LoadPlan plan) {
    TestDir dir;
    plan.model = dir / "model";
    EXPECT_TRUE(write_random_model(plan.model, {.facts = tiny_llama_facts()}));
    const auto loaded = kit::WeightSet::load(loader, plan);
    return loaded ? std::string() : loaded.error().id + ": " + loaded.error().message;
  };
  const LoadPlan by_engine{.dtype = DType::f32, .weights = WeightSource::engine};
  Loader loader;
  EXPECT_EQ(error_of(loader, by_engine), "");
  loader.missing = "w.layers.1.mlp_up";
  EXPECT_NE(error_of(loader, by_engine).find("engine-error: the engine's loader returned"), std::string::npos);
  loader.missing.clear();
  loader.transposed = "w.layers.1.mlp_up";
  EXPECT_EQ(error_of(loader, by_engine), "engine-error: w.layers.1.mlp_up: expected shape [80, 48], loaded [48, 80]");

  Loader plain;
  auto faulty = by_engine;
  faulty.weight_fault.q4_1_nibble_offset = 2;
  EXPECT_EQ(error_of(plain, faulty).substr(0, 12), "plan-invalid") << "the fault is of culprit's reader";
  EXPECT_EQ(error_of(plain, {.dtype = DType::i32}).substr(0, 12), "plan-invalid");
}

// In f32 the f16 scales and biases stay exact, so both forms mean the same values and the reference gives the same bits.
TEST(WeightSet, PackedAndDenseFormsMeanTheSameInF32) {
  Loader loader;
  loader.quantise = true;
  TestEngine engine(DType::f32, WeightSource::engine, &loader);
  auto plan = three_rows({3, 1});
  const auto dense = engine.run(plan);
  plan.variants["linear"] = "quantized";
  EXPECT_EQ(differing(dense, engine.run(plan)), std::vector<std::string>{});
}

// In bf16 they do not: scales and biases are rounded, then the sum is not. An exact intervention takes the form that the op took.
TEST(WeightSet, PackedFormRoundsScalesInTheDtypeOfTheRun) {
  Loader loader;
  loader.quantise = true;
  TestEngine engine(DType::bf16, WeightSource::engine, &loader);
  auto plan = three_rows({3, 1});
  const auto dense = engine.run(plan);
  plan.variants["linear"] = "quantized";
  const auto packed = engine.run(plan);
  EXPECT_EQ(differing(dense, packed).front(), "layers.0.q@0");
  plan.interventions.push_back({.kind = Intervention::Kind::exact, .tap = "**"});
  EXPECT_EQ(differing(packed, engine.run(plan)), std::vector<std::string>{});
}

}  // namespace
}  // namespace culprit::ref
