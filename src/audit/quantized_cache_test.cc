// What legal arithmetic makes of a quantised cache is inside its bound, and what breaks it is not.
#include "audit/quantized_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <utility>

#include "audit/judge.h"
#include "decode/affine_groups.h"

namespace culprit {
namespace {

constexpr std::int64_t kHeads = 2, kSlots = 3, kChannels = 128;

CacheSpec spec_of(std::int64_t bits, std::int64_t group) { return {.kind = CacheKind::quantized, .bits = bits, .group = group}; }

/// One group as an engine has it, with f32 arithmetic inside; what it is asked for is broken before the values are made.
struct F32Group {
  std::vector<float> q;
  float scale = 0, bias = 0;
};

float in_dtype(DType dtype, float value) { return static_cast<float>(round_to(dtype, static_cast<double>(value))); }

F32Group quantised_in_f32(std::span<const float> x, float levels) {
  float low = x[0], high = x[0];
  for (const float value : x) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const bool below = std::fabs(low) > std::fabs(high);
  const float edge = below ? low : high;
  float scale = std::max((high - low) / levels, 1e-7F);
  if (!below) scale = -scale;
  F32Group group{{}, scale, 0};
  if (const float k = std::rint(edge / scale); k != 0) {
    group.scale = edge / k;
    group.bias = edge;
  }
  for (const float value : x) group.q.push_back(std::min(std::max(std::rint((value - group.bias) / group.scale), 0.0F), levels));
  return group;
}

/// All groups of x [.., channel], `touch`ed, then dequantised by a product and a sum that are each rounded to the dtype.
Tensor read_in_f32(const Tensor& x, const CacheSpec& spec, const std::function<void(std::vector<F32Group>&)>& touch = {}) {
  const auto exact = x.values();
  const std::vector<float> values(exact.begin(), exact.end());
  const auto size = static_cast<std::size_t>(spec.group);
  std::vector<F32Group> groups;
  for (std::size_t begin = 0; begin < values.size(); begin += size)
    groups.push_back(quantised_in_f32(std::span(values).subspan(begin, size), static_cast<float>((1 << spec.bits) - 1)));
  if (touch) touch(groups);
  std::vector<double> read;
  for (const auto& group : groups)
    for (const float q : group.q) {
      const float product = in_dtype(x.dtype(), q * in_dtype(x.dtype(), group.scale));
      read.push_back(in_dtype(x.dtype(), product + in_dtype(x.dtype(), group.bias)));
    }
  return Tensor::from_values(x.dtype(), x.shape(), read);
}

Tensor tensor_of(DType dtype, const std::function<double(std::size_t)>& value) {
  std::vector<double> values(static_cast<std::size_t>(kHeads * kSlots * kChannels));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(i);
  return Tensor::from_values(dtype, {1, kHeads, kSlots, kChannels}, values);
}

/// By the level that is nearest to what was read, as the auditor does it, or around what was written.
enum class By { level, written };
OpAudit judged(const Tensor& written, const CacheSpec& spec, const Tensor& read, By by = By::level) {
  const CacheHistory::Expected expected{written, std::vector<bool>(static_cast<std::size_t>(kHeads * kSlots), true)};
  OpAudit audit;
  judge(quantized_cache_bounds(expected, spec, written.dtype(), by == By::level ? &read : nullptr), read, audit);
  return audit;
}

/// Kinds of values that caches see, and those at which the arithmetic of scale and bias changes its course.
std::vector<std::function<double(std::size_t)>> kinds_of_values(DType dtype, std::mt19937& random) {
  const double largest = rounding_of(dtype).largest;
  const auto normal = [&random](double mean, double deviation) {
    return [&random, mean, deviation](std::size_t) { return std::normal_distribution(mean, deviation)(random); };
  };
  const double f32_reach = std::min(largest, rounding_of(DType::f32).largest) / 4;
  return {normal(0, 1),
          normal(50, 1),
          normal(-3, 0.01),
          normal(0, 1e-6),
          normal(0, 1e-8),
          normal(0, 2 * rounding_of(dtype).half_subnormal),
          [](std::size_t) { return 0.0; },
          [](std::size_t i) { return i % 2 == 0 ? 0.0 : -0.0; },
          [](std::size_t i) { return i / 32 % 2 == 0 ? 3.25 : -1e-3; },  // constant groups
          [](std::size_t i) { return i % 2 == 0 ? 1.5 : -1.5; },         // k lies between two numbers
          [&random](std::size_t i) { return std::uniform_real_distribution(-1.0, 1.0)(random) + (i % 64 == 7 ? 1000 : 0); },
          [f32_reach](std::size_t i) { return (i % 3 == 0 ? 1 : -0.99) * f32_reach; },
          [largest](std::size_t i) { return i % 32 == 0 ? largest / 2 : 0; },
          [](std::size_t i) { return 4e-8 + 1e-9 * static_cast<double>(i % 32); },  // about half the least step
          [](std::size_t i) { return (i % 2 == 0 ? 5e-8 : -5e-8); }};
}

class Form : public testing::TestWithParam<std::tuple<DType, std::int64_t, std::int64_t>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  CacheSpec spec() const { return spec_of(std::get<1>(GetParam()), std::get<2>(GetParam())); }
};

TEST_P(Form, LegalArithmeticIsWithin) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    std::mt19937 random(seed);
    const auto kinds = kinds_of_values(dtype(), random);
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      const auto written = tensor_of(dtype(), kinds[kind]);
      const auto reference = judged(written, spec(), dequantise_groups(quantise_groups(written, spec()), spec()));
      EXPECT_EQ(reference.over, 0) << "values " << kind << " at " << testing::PrintToString(reference.worst) << ": expected "
                                   << reference.expected << ", got " << reference.actual << " within " << reference.bound;
      EXPECT_EQ(reference.precision, 0);
      if (dtype() == DType::f64) continue;
      const auto engine = judged(written, spec(), read_in_f32(written, spec()));
      EXPECT_EQ(engine.over, 0) << "values " << kind << " at " << testing::PrintToString(engine.worst) << ": expected " << engine.expected
                                << ", got " << engine.actual << " within " << engine.bound;
      EXPECT_EQ(engine.precision, 0);
      if (kind == 0) {
        const auto around_written = judged(written, spec(), read_in_f32(written, spec()), By::written);
        EXPECT_EQ(around_written.over, 0);
        EXPECT_GT(around_written.ratio_max, spec().bits == 8 && dtype() == DType::bf16 ? 0.25 : 0.5) << "a bound that nothing comes near";
        EXPECT_EQ(spec().bits > 2 ? engine.vacuous : 0, 0);  // half of a third of the range is as much as a value
      }
    }
  }
}

/// Whether `touch` of the groups shows.
bool shows(const Tensor& written, const CacheSpec& spec, const std::function<void(std::vector<F32Group>&)>& touch) {
  const auto audit = judged(written, spec, read_in_f32(written, spec, touch));
  return audit.judgement == Judgement::corruption;
}

class BrokenForm : public Form {};

TEST_P(BrokenForm, IsOutside) {
  std::mt19937 random(5);
  // Each group has a range of its own.
  const auto written = tensor_of(dtype(), [&](std::size_t i) {
    return std::normal_distribution(0.0, 1 + 0.5 * static_cast<double>(i / static_cast<std::size_t>(spec().group)))(random);
  });
  ASSERT_FALSE(shows(written, spec(), [](auto&) {}));
  const auto groups = static_cast<std::size_t>(kHeads * kSlots * kChannels / spec().group),
             in_slot = static_cast<std::size_t>(kChannels / spec().group);
  EXPECT_TRUE(shows(written, spec(), [](auto& g) { g[0].scale = g[1].scale; })) << "the scale of the neighbouring group";
  EXPECT_TRUE(shows(written, spec(), [](auto& g) { g[0].bias = g[1].bias; })) << "the bias of the neighbouring group";
  EXPECT_TRUE(shows(written, spec(), [&](auto& g) { g[groups - 1] = g[groups - 2]; })) << "a stale group";
  EXPECT_TRUE(shows(written, spec(), [&](auto& g) { std::rotate(g.begin(), g.begin() + static_cast<std::ptrdiff_t>(in_slot), g.end()); }))
      << "slots written one late";
  EXPECT_TRUE(shows(written, spec(), [](auto& g) { g[0].scale = -g[0].scale; })) << "a scale's sign";
  EXPECT_TRUE(shows(written, spec(), [](auto& g) { g[0].bias = 0; })) << "a bias that was left out";
  EXPECT_TRUE(shows(written, spec(), [](auto& g) { std::rotate(g[0].q.begin(), g[0].q.begin() + 1, g[0].q.end()); }))
      << "channels shifted by one";
  EXPECT_TRUE(shows(written, spec(), [](auto& g) { g[0].q[5] = std::nanf(""); })) << "NaN";
  EXPECT_TRUE(shows(written, spec(), [](auto& g) {
    for (auto& q : g[0].q) q = 0;
  })) << "words that were not written";
  const auto levels = static_cast<float>((1 << spec().bits) - 1);
  const float off = spec().bits == 8 && dtype() == DType::bf16 ? 4 : 2;
  EXPECT_TRUE(shows(written, spec(), [&](auto& g) { g[0].q[5] += g[0].q[5] + off > levels ? -off : off; }))
      << "a level that is " << off << " off";
}

TEST_P(Form, AFiniteValueOfNoFormIsNotTested) {
  auto written = tensor_of(dtype(), [](std::size_t i) { return static_cast<double>(i % 7) - 3; });
  written.set({0, 0, 0, 3}, std::numeric_limits<double>::infinity());
  auto read = dequantise_groups(quantise_groups(written, spec()), spec());
  const auto audit = judged(written, spec(), read);
  EXPECT_EQ(audit.over, 0);
  EXPECT_EQ(audit.count, kHeads * kSlots * kChannels - spec().group);
}

std::string name_of_form(const testing::TestParamInfo<std::tuple<DType, std::int64_t, std::int64_t>>& form) {
  const auto& [dtype, bits, group] = form.param;
  return std::string(name_of(dtype)) + "_" + std::to_string(bits) + "_bits_" + std::to_string(group);
}
INSTANTIATE_TEST_SUITE_P(Forms, Form,
                         testing::Combine(testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16), testing::Values(2, 4, 8),
                                          testing::Values(32, 64, 128)),
                         name_of_form);
INSTANTIATE_TEST_SUITE_P(Forms, BrokenForm,
                         testing::Combine(testing::Values(DType::f32, DType::bf16, DType::f16), testing::Values(2, 4, 8),
                                          testing::Values(32, 64, 128)),
                         name_of_form);

// As the explainer needs it: the new tokens by the rule, those before bit for bit.
TEST(BoundedWrite, MovesWhatWasStoredAndQuantisesWhatIsNew) {
  std::mt19937 random(3);
  const auto values = tensor_of(DType::f32, [&](std::size_t) { return std::normal_distribution()(random); });
  Facts facts;
  Node node;
  node.op = Op::cache_write;
  NodeContext context;
  context.facts = &facts;
  context.dtype = DType::f32;
  context.cache_spec = spec_of(4, 32);
  context.cache = values.sliced(2, 0, 2).copy();
  context.cache_slot = {{7, 8}};
  context.at = {.sequence = {0}, .position = {{9}}, .slot = {{7, 9, 8}}};
  const auto fed = values.sliced(2, 2, 3).copy();
  const auto bounded = *bounded_node(node, {to_array(fed)}, context, DType::f32, {});
  const auto right = to_tensor(*evaluate_node(node, {to_array(fed)}, context), DType::f32);
  EXPECT_EQ(right.sliced(2, 0, 1).values(), values.sliced(2, 0, 1).values());
  EXPECT_EQ(right.sliced(2, 2, 3).values(), values.sliced(2, 1, 2).values());
  EXPECT_NE(right.sliced(2, 1, 2).values(), fed.values());
  OpAudit audit;
  judge(bounded, right, audit);
  EXPECT_EQ(audit.over, 0);
  auto unquantised = right.copy();
  unquantised.set({0, 0, 0, 4}, unquantised.at({0, 0, 0, 4}) * (1 + 0x1p-23));
  OpAudit moved;
  judge(bounded, unquantised, moved);
  EXPECT_EQ(moved.over, 1) << "a stored slot may not change at all";
}

TEST(AffineGroups, KeepTheEdgeAndZero) {
  const auto spec = spec_of(4, 32);
  std::vector<double> values(32);
  for (std::size_t i = 0; i < 32; ++i) values[i] = static_cast<double>(i % 16) - 4;  // -4 .. 11: a step of 1
  const auto x = Tensor::from_values(DType::f32, {1, 1, 1, 32}, values);
  const auto groups = quantise_groups(x, spec);
  EXPECT_EQ(groups.packed.shape(), (Shape{1, 1, 1, 4}));
  EXPECT_EQ(groups.scales.values(), std::vector<double>{-1});
  EXPECT_EQ(groups.biases.values(), std::vector<double>{11});
  EXPECT_EQ(groups.packed.values()[0], 0x89abcdef) << "the first channel in the lowest bits";
  EXPECT_EQ(dequantise_groups(groups, spec).values(), values);
}

TEST(NeverQuantised, IsOutsideWhereLevelsLieFurtherApartThanRoundingsReach) {
  std::mt19937 random(5);
  const auto normal = [&](std::size_t) { return std::normal_distribution(0.0, 1.0)(random); };
  for (const auto& [dtype, bits] : {std::pair{DType::f32, 8}, {DType::f32, 4}, {DType::f16, 4}, {DType::bf16, 4}, {DType::bf16, 2}}) {
    const auto spec = spec_of(bits, 32);
    const auto written = tensor_of(dtype, normal);
    const auto raw = judged(written, spec, written);
    // Edges lie on a level, and a value may lie on one by chance; in 16 bits roundings cover much of what is between two.
    EXPECT_GT(raw.over, written.count() / 2) << name_of(dtype) << " " << bits;
    EXPECT_EQ(raw.judgement, Judgement::corruption);
  }
  // One level more or less in one element is as far off as ever, and one element between two levels is enough.
  const auto spec = spec_of(4, 32);
  const auto written = tensor_of(DType::f32, normal);
  auto read = dequantise_groups(quantise_groups(written, spec), spec);
  EXPECT_EQ(judged(written, spec, read).over, 0);
  std::int64_t channel = 0;
  while (read.at({0, 1, 2, channel}) == written.at({0, 1, 2, channel})) ++channel;
  read.set({0, 1, 2, channel}, written.at({0, 1, 2, channel}));
  EXPECT_EQ(judged(written, spec, read).over, 1);
}

}  // namespace
}  // namespace culprit
