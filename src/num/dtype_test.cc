#include "num/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace culprit {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr DType kAll[] = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u32, DType::u8, DType::boolean};

/// The oracle: a 16-bit format by its definition (IEEE 754-2019, 3.4), knowing nothing of how the code does it.
struct Format {
  DType dtype;
  int exponent_bits;
  int fraction_bits;

  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] std::uint16_t infinity() const { return static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << fraction_bits); }
  [[nodiscard]] double decode(std::uint16_t bits) const {
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const int exponent = (bits & 0x7fff) >> fraction_bits;
    double magnitude = 0;
    if (exponent == (1 << exponent_bits) - 1)
      magnitude = fraction == 0 ? kInfinity : std::nan("");
    else if (exponent == 0)
      magnitude = std::ldexp(fraction, 1 - bias() - fraction_bits);
    else
      magnitude = std::ldexp((1 << fraction_bits) + fraction, exponent - bias() - fraction_bits);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
  }
  /// What infinity stands for when a value is rounded: the power of two after the largest finite value.
  [[nodiscard]] double rounding_target(std::uint16_t magnitude) const {
    return magnitude == infinity() ? std::ldexp(1.0, bias() + 1) : decode(magnitude);
  }
};
constexpr Format kFormats[] = {{DType::f16, 5, 10}, {DType::bf16, 8, 7}};

/// The nearest value of a format, ties to even, by search among all of them.
class NearestOracle {
 public:
  explicit NearestOracle(const Format& format) {
    for (int bits = 0; bits <= format.infinity(); ++bits) values_.push_back(format.rounding_target(static_cast<std::uint16_t>(bits)));
  }
  [[nodiscard]] std::uint16_t round(double value) const {
    const double magnitude = std::min(std::fabs(value), values_.back());
    const auto above = static_cast<std::size_t>(std::lower_bound(values_.begin(), values_.end(), magnitude) - values_.begin());
    std::size_t nearest = above;
    if (values_[above] != magnitude) {
      // Both differences are exact: the neighbours are within a factor of two of the value, or it is below the smallest of them.
      const long double down = static_cast<long double>(magnitude) - values_[above - 1];
      const long double up = static_cast<long double>(values_[above]) - magnitude;
      nearest = down < up || (down == up && above % 2 == 1) ? above - 1 : above;
    }
    return static_cast<std::uint16_t>(nearest | (std::signbit(value) ? 0x8000 : 0));
  }

 private:
  std::vector<double> values_;
};

template <class Wide>
std::uint16_t stored(DType dtype, Wide value) {
  std::uint16_t bits = 0;
  store_many(dtype, &value, 1, &bits);
  return bits;
}

std::uint64_t bits_of(double value) { return std::bit_cast<std::uint64_t>(value); }

TEST(Widen, EveryBitPatternOfTheHalfFormats) {
  for (const auto& format : kFormats)
    for (int i = 0; i < 65'536; ++i) {
      const auto bits = static_cast<std::uint16_t>(i);
      const double expected = format.decode(bits);
      const double actual = load(format.dtype, &bits);
      const double single = format.dtype == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(actual) && std::isnan(single)) << i;
        ASSERT_TRUE(std::isnan(format.decode(stored(format.dtype, actual)))) << i;
        ASSERT_TRUE(std::isnan(format.decode(stored(format.dtype, static_cast<float>(single))))) << i;
        ASSERT_EQ(std::signbit(actual), (bits & 0x8000) != 0) << i;
        continue;
      }
      ASSERT_EQ(bits_of(actual), bits_of(expected)) << i;
      ASSERT_EQ(bits_of(single), bits_of(expected)) << i;
      ASSERT_EQ(stored(format.dtype, actual), bits);
      ASSERT_EQ(stored(format.dtype, static_cast<float>(actual)), bits);
    }
}

// One f64 ulp beside a midpoint is where rounding by way of f32 goes wrong.
TEST(Narrow, RoundsOnceAtEveryMidpoint) {
  for (const auto& format : kFormats)
    for (std::uint16_t low = 0; low < format.infinity(); ++low) {
      const auto high = static_cast<std::uint16_t>(low + 1);
      const auto even = low % 2 == 0 ? low : high;
      const double midpoint = (format.decode(low) + format.rounding_target(high)) / 2;
      const auto single = static_cast<float>(midpoint);
      ASSERT_EQ(static_cast<double>(single), midpoint) << "the midpoints are exact in f32";
      const float infinity = std::numeric_limits<float>::infinity();
      ASSERT_EQ(stored(format.dtype, midpoint), even) << low;
      ASSERT_EQ(stored(format.dtype, std::nextafter(midpoint, 0.0)), low) << low;
      ASSERT_EQ(stored(format.dtype, std::nextafter(midpoint, kInfinity)), high) << low;
      ASSERT_EQ(stored(format.dtype, -midpoint), even | 0x8000) << low;
      ASSERT_EQ(stored(format.dtype, -std::nextafter(midpoint, 0.0)), low | 0x8000) << low;
      ASSERT_EQ(stored(format.dtype, -std::nextafter(midpoint, kInfinity)), high | 0x8000) << low;
      ASSERT_EQ(stored(format.dtype, single), even) << low;
      ASSERT_EQ(stored(format.dtype, std::nextafter(single, 0.0f)), low) << low;
      ASSERT_EQ(stored(format.dtype, std::nextafter(single, infinity)), high) << low;
      ASSERT_EQ(stored(format.dtype, -single), even | 0x8000) << low;
    }
}

TEST(Narrow, AgreesWithASearchForTheNearestValue) {
  for (const auto& format : kFormats) {
    const NearestOracle oracle(format);
    std::mt19937_64 random(7);
    for (int i = 0; i < 300'000; ++i) {
      const auto single = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      if (!std::isnan(single)) {
        ASSERT_EQ(stored(format.dtype, single), oracle.round(single)) << single;
      }
      // An exponent somewhat wider than the format's, so that underflow, subnormals and overflow all occur.
      const int exponent = static_cast<int>(random() % static_cast<unsigned>(2 * format.bias() + 40)) - format.bias() - 20;
      const double value = std::ldexp(1 + static_cast<double>(random() >> 12) * 0x1p-52, exponent) * (i % 2 == 0 ? 1 : -1);
      ASSERT_EQ(stored(format.dtype, value), oracle.round(value)) << value;
    }
    for (const double value : {0.0, -0.0, 5e-324, -5e-324, 0x1p-1022, std::numeric_limits<double>::max(), kInfinity, -kInfinity})
      EXPECT_EQ(stored(format.dtype, value), oracle.round(value)) << value;
  }
}

TEST(Narrow, NamedFunctionsRoundOnceToo) {
  // Above 1 + 2^-11 by 2^-40: f32 would drop the 2^-40 and the tie go to even, 1.
  EXPECT_EQ(f64_to_f16(1 + 0x1p-11 + 0x1p-40), 0x3c01);
  EXPECT_EQ(f64_to_f16(static_cast<float>(1 + 0x1p-11 + 0x1p-40)), 0x3c00);
  EXPECT_EQ(f64_to_bf16(1 + 0x1p-8 + 0x1p-40), 0x3f81);
  EXPECT_EQ(f64_to_bf16(static_cast<float>(1 + 0x1p-8 + 0x1p-40)), 0x3f80);
}

TEST(Narrow, NanStaysNanWhateverItsPayload) {
  for (const std::uint64_t sign : {0x0ull, 0x8000000000000000ull})
    for (const std::uint64_t payload : {0x1ull, 0x8000000000000ull, 0xfffffffffffffull, 0x100000000ull, 0x4000000000000ull}) {
      const auto value = std::bit_cast<double>(sign | 0x7ff0000000000000ull | payload);
      for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
        EXPECT_TRUE(std::isnan(round_to(dtype, value))) << name_of(dtype) << payload;
    }
  for (const std::uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu, 0x7fc00000u})
    for (const auto& format : kFormats) EXPECT_TRUE(std::isnan(format.decode(stored(format.dtype, std::bit_cast<float>(bits))))) << bits;
}

TEST(Narrow, F32RoundsAsTheHardwareDoes) {
  EXPECT_EQ(round_to(DType::f32, 1 + 0x1p-24), 1);
  EXPECT_EQ(round_to(DType::f32, 1 + 0x1p-24 + 0x1p-50), 1 + 0x1p-23);
  EXPECT_EQ(round_to(DType::f32, 0x1p-150), 0);
  EXPECT_EQ(round_to(DType::f32, std::nextafter(0x1p-150, 1.0)), 0x1p-149);
  EXPECT_EQ(round_to(DType::f32, 1e300), kInfinity);
}

struct IntegerCase {
  DType dtype;
  double value;
  double expected;
};

TEST(Integers, SaturateAndTieToEven) {
  const IntegerCase cases[] = {
      {DType::u8, 0.5, 0},
      {DType::u8, 1.5, 2},
      {DType::u8, 2.5, 2},
      {DType::u8, 255.4, 255},
      {DType::u8, 255.5, 255},
      {DType::u8, -0.5, 0},
      {DType::u8, -1, 0},
      {DType::u8, kInfinity, 255},
      {DType::u8, std::nan(""), 0},
      {DType::u32, 4294967295.0, 4294967295.0},
      {DType::u32, 4294967296.0, 4294967295.0},
      {DType::u32, -3, 0},
      {DType::i32, -2.5, -2},
      {DType::i32, 2147483647.0, 2147483647.0},
      {DType::i32, 2147483648.0, 2147483647.0},
      {DType::i32, -2147483648.0, -2147483648.0},
      {DType::i32, -2147483649.0, -2147483648.0},
      {DType::i32, -kInfinity, -2147483648.0},
      {DType::i32, std::nan(""), 0},
      {DType::i64, 0x1p53 - 1, 0x1p53 - 1},
      {DType::i64, -0x1p63, -0x1p63},
      {DType::i64, -1e30, -0x1p63},
      {DType::boolean, 0.0, 0},
      {DType::boolean, -0.0, 0},
      {DType::boolean, 1e-300, 1},
      {DType::boolean, std::nan(""), 1},
  };
  for (const auto& c : cases) EXPECT_EQ(round_to(c.dtype, c.value), c.expected) << name_of(c.dtype) << " of " << c.value;
  std::int64_t largest = 0;
  store(DType::i64, &largest, 0x1p63);
  EXPECT_EQ(largest, std::numeric_limits<std::int64_t>::max());
  store(DType::i64, &largest, 0x1.fffffffffffffp62);
  EXPECT_EQ(largest, std::numeric_limits<std::int64_t>::max() - 1023);
}

TEST(Integers, AnyByteButZeroIsTrue) {
  const std::uint8_t odd = 0x40;
  EXPECT_EQ(load(DType::boolean, &odd), 1);
}

TEST(Many, AgreesWithOneByOneAtAnyAlignment) {
  std::mt19937_64 random(3);
  for (const DType dtype : kAll) {
    constexpr std::size_t kCount = 1'003;
    const std::size_t size = size_of(dtype);
    std::vector<unsigned char> source(kCount * size + 1);
    for (auto& byte : source) byte = static_cast<unsigned char>(random());
    std::vector<double> doubles(kCount);
    std::vector<float> floats(kCount);
    load_many(dtype, source.data() + 1, kCount, doubles.data());
    load_many(dtype, source.data() + 1, kCount, floats.data());
    std::vector<unsigned char> from_doubles(kCount * size + 1);
    std::vector<unsigned char> from_floats(kCount * size + 1);
    store_many(dtype, doubles.data(), kCount, from_doubles.data() + 1);
    store_many(dtype, floats.data(), kCount, from_floats.data() + 1);
    for (std::size_t i = 0; i < kCount; ++i) {
      const double expected = load(dtype, source.data() + 1 + i * size);
      ASSERT_EQ(bits_of(doubles[i]), bits_of(expected)) << name_of(dtype) << i;
      // i64 goes to f32 in one rounding, not by way of f64. A signalling NaN may become quiet.
      if (dtype != DType::i64 && !std::isnan(expected)) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[i]), std::bit_cast<std::uint32_t>(static_cast<float>(expected)))
            << name_of(dtype) << i;
      }
      ASSERT_TRUE(dtype == DType::i64 || std::isnan(floats[i]) == std::isnan(expected)) << name_of(dtype) << i;
      unsigned char one[8];
      store(dtype, one, doubles[i]);
      ASSERT_EQ(std::memcmp(one, from_doubles.data() + 1 + i * size, size), 0) << name_of(dtype) << i;
      store(dtype, one, static_cast<double>(floats[i]));
      const bool signalling = dtype == DType::f32 && std::isnan(floats[i]);  // stored from f32 as it is, from f64 quietened
      ASSERT_TRUE(signalling || std::memcmp(one, from_floats.data() + 1 + i * size, size) == 0) << name_of(dtype) << i;
    }
  }
}

TEST(RoundingTable, IsWhatRoundingShows) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const auto [unit, half_subnormal, largest] = rounding_of(dtype);
    EXPECT_EQ(round_to(dtype, 1 + unit), 1) << name_of(dtype);
    EXPECT_EQ(round_to(dtype, std::nextafter(1 + unit, 2.0)), 1 + 2 * unit) << name_of(dtype);
    EXPECT_EQ(round_to(dtype, half_subnormal), 0) << name_of(dtype);
    EXPECT_EQ(round_to(dtype, std::nextafter(half_subnormal, 1.0)), 2 * half_subnormal) << name_of(dtype);
    EXPECT_EQ(round_to(dtype, largest), largest) << name_of(dtype);
    const double overflow = largest * (1 + unit / (2 - 2 * unit));  // halfway to the next power of two
    EXPECT_EQ(round_to(dtype, overflow), kInfinity) << name_of(dtype);
    EXPECT_EQ(round_to(dtype, std::nextafter(overflow, 0.0)), largest) << name_of(dtype);
  }
  const auto [unit, half_subnormal, largest] = rounding_of(DType::f64);
  EXPECT_EQ(2 * unit, std::numeric_limits<double>::epsilon());
  EXPECT_EQ(half_subnormal, std::numeric_limits<double>::denorm_min() / 2);
  EXPECT_EQ(largest, std::numeric_limits<double>::max());
}

TEST(UlpDistance, CountsEveryValueOfTheHalfFormats) {
  for (const auto& format : kFormats)
    for (std::uint16_t bits = 0; bits < format.infinity(); ++bits) {
      const double value = format.decode(bits);
      const double next = format.decode(static_cast<std::uint16_t>(bits + 1));
      ASSERT_EQ(ulp_distance(format.dtype, value, next), 1u) << bits;
      ASSERT_EQ(ulp_distance(format.dtype, -next, -value), 1u) << bits;
      ASSERT_EQ(ulp_distance(format.dtype, -value, value), 2u * bits) << bits;
      ASSERT_EQ(ulp_distance(format.dtype, 0, value), bits) << bits;
    }
}

TEST(UlpDistance, CoversTheWidestRangesAndNan) {
  EXPECT_EQ(ulp_distance(DType::f64, -kInfinity, kInfinity), 2 * 0x7ff0000000000000ull);
  EXPECT_EQ(ulp_distance(DType::f64, 1, std::nextafter(1.0, 0.0)), 1u);
  EXPECT_EQ(ulp_distance(DType::f32, 1, 1 + 0x1p-23), 1u);
  EXPECT_EQ(ulp_distance(DType::f32, 1, 1 + 0x1p-30), 0u) << "both are 1 in f32";
  EXPECT_EQ(ulp_distance(DType::f16, -0.0, 0.0), 0u);
  EXPECT_EQ(ulp_distance(DType::f16, 65504, kInfinity), 1u);
  EXPECT_EQ(ulp_distance(DType::i32, -3, 4), 7u);
  EXPECT_EQ(ulp_distance(DType::i64, -0x1p63, 0x1p63), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(ulp_distance(DType::u8, 3, 250), 247u);
  EXPECT_EQ(ulp_distance(DType::f32, std::nan(""), 1), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(ulp_distance(DType::f32, 1, std::nan("")), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(ulp_distance(DType::f32, std::nan(""), std::nan("")), 0u);
}

TEST(Names, ComeBack) {
  for (const DType dtype : kAll) EXPECT_EQ(parse_dtype(name_of(dtype)).value(), dtype);
  EXPECT_EQ(parse_dtype("bfloat16").value(), DType::bf16);
  EXPECT_EQ(parse_dtype("float16").value(), DType::f16);
  EXPECT_EQ(parse_dtype("float32").value(), DType::f32);
  EXPECT_EQ(parse_dtype("float64").value(), DType::f64);
  for (const char* name : {"", "F32", "f8", "float"}) EXPECT_EQ(parse_dtype(name).error().id, "dtype-unknown") << name;
  EXPECT_TRUE(is_float(DType::bf16));
  EXPECT_FALSE(is_float(DType::boolean));
}

}  // namespace
}  // namespace culprit
