// What a `find` spends its time on: the float64 linear op with its bound (most of an audit), a conversion, a hash of a tap.
#include <benchmark/benchmark.h>

#include <random>

#include "audit/ops/linear.h"
#include "base/hash.h"

namespace culprit {
namespace {

std::vector<double> random_values(std::int64_t count) {
  std::mt19937_64 source(1);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(count));
  for (auto& value : values) value = normal(source);
  return values;
}

// The mlp_up of SmolLM2 135M. Bytes: the weight, read once however many tokens.
void linear_with_bounds(benchmark::State& state) {
  constexpr std::int64_t kIn = 576, kOut = 1536;
  const auto tokens = state.range(0);
  const auto dtype = static_cast<DType>(state.range(1));
  const auto weight = Tensor::from_values(dtype, {kOut, kIn}, random_values(kOut * kIn));
  const auto x = random_values(tokens * kIn);
  for (auto _ : state) benchmark::DoNotOptimize(bounded_linear(x, tokens, weight, {}, dtype, {}));
  state.SetItemsProcessed(state.iterations() * tokens * kOut * kIn);
  state.SetBytesProcessed(state.iterations() * kOut * kIn * static_cast<std::int64_t>(size_of(dtype)));
  state.SetLabel(std::string(name_of(dtype)));
}
BENCHMARK(linear_with_bounds)
    ->ArgNames({"tokens", "dtype"})
    ->ArgsProduct({{1, 32}, {static_cast<int>(DType::f32), static_cast<int>(DType::bf16)}})
    ->UseRealTime();

void values_of_bf16(benchmark::State& state) {
  const auto tensor = Tensor::from_values(DType::bf16, {1024, 1024}, random_values(1 << 20));
  for (auto _ : state) benchmark::DoNotOptimize(tensor.values());
  state.SetItemsProcessed(state.iterations() * tensor.count());
}
BENCHMARK(values_of_bf16);

void hash_of_a_tap(benchmark::State& state) {
  const std::vector<std::byte> bytes(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(xxh3_128(bytes));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(hash_of_a_tap)->Range(1 << 12, 1 << 22);

}  // namespace
}  // namespace culprit
