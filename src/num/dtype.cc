#include "num/dtype.h"

#include <fmt/format.h>

#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

namespace culprit {
namespace {
struct Name {
  DType dtype;
  std::string_view text;
};
constexpr Name kNames[] = {{DType::f64, "f64"}, {DType::f32, "f32"}, {DType::f16, "f16"}, {DType::bf16, "bf16"},   {DType::i64, "i64"},
                           {DType::i32, "i32"}, {DType::u32, "u32"}, {DType::u8, "u8"},   {DType::boolean, "bool"}};
constexpr Name kOtherNames[] = {{DType::f64, "float64"}, {DType::f32, "float32"}, {DType::f16, "float16"}, {DType::bf16, "bfloat16"}};

/// 2^exponent for a normal result; constexpr, unlike ldexp.
template <class Wide>
constexpr Wide power_of_two(int exponent) {
  if constexpr (sizeof(Wide) == 8)
    return std::bit_cast<Wide>(static_cast<std::uint64_t>(exponent + 1023) << 52);
  else
    return std::bit_cast<Wide>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

/// condition ? x : y. With 32 bits in a form that the compiler cannot turn into a branch around the arithmetic of x, which would keep loops
/// from being vectorised; baseline x86-64 has no 64-bit vector comparison, and there scalar code is faster.
template <class Bits>
constexpr Bits select(bool condition, Bits x, Bits y) {
  if constexpr (sizeof(Bits) == 8) return condition ? x : y;
  const Bits mask = Bits(0) - Bits(condition);
  return (x & mask) | (y & ~mask);
}

/// Rounds `value` once, to nearest, ties to even, to a 16-bit format of kFraction stored fraction bits. NaN keeps its sign and becomes
/// quiet.
template <int kFraction, class Wide>
std::uint16_t narrow(Wide value) {
  using Bits = std::conditional_t<sizeof(Wide) == 8, std::uint64_t, std::uint32_t>;
  constexpr int kWideFraction = std::numeric_limits<Wide>::digits - 1;
  constexpr int kWideBias = std::numeric_limits<Wide>::max_exponent - 1;
  constexpr int kBias = (1 << (14 - kFraction)) - 1;
  constexpr int kShift = kWideFraction - kFraction;
  constexpr Bits kInfinity = Bits((1 << 15) - (1 << kFraction));
  constexpr Bits kQuiet = Bits(1) << (kFraction - 1);
  constexpr Bits kSign = Bits(1) << (sizeof(Bits) * 8 - 1);

  const Bits bits = std::bit_cast<Bits>(value);
  const Bits magnitude = bits & ~kSign;
  // Normal results: move the exponent to the narrow bias, then round by adding just under half a unit, and the rest if the unit is odd.
  // A carry runs into the exponent, which is what rounding up to the next power of two, or to infinity, means.
  const Bits rebiased = magnitude - (Bits(kWideBias - kBias) << kWideFraction);
  const Bits rounded = (rebiased + ((Bits(1) << (kShift - 1)) - 1) + ((rebiased >> kShift) & 1)) >> kShift;
  const Bits normal = select(rounded < kInfinity, rounded, kInfinity);
  // Subnormal results are multiples of 2^(1 - bias - fraction). Added to a power of two whose unit is just that, the value is rounded by
  // the addition, and the low bits of the sum count the multiples.
  constexpr Wide kMagic = power_of_two<Wide>(1 - kBias - kFraction + kWideFraction);
  const Bits subnormal = std::bit_cast<Bits>(std::bit_cast<Wide>(magnitude) + kMagic) - std::bit_cast<Bits>(kMagic);

  constexpr Bits kSmallestNormal = Bits(kWideBias - kBias + 1) << kWideFraction;
  constexpr Bits kWideInfinity = Bits(2 * kWideBias + 1) << kWideFraction;
  Bits result = select(magnitude < kSmallestNormal, subnormal, normal);
  result = select(magnitude > kWideInfinity, kInfinity | kQuiet, result);
  return static_cast<std::uint16_t>(result | (bits >> (sizeof(Bits) * 8 - 16) & 0x8000));
}
constexpr int kF16Fraction = 10;
constexpr int kBf16Fraction = 7;

inline float widen_f16(std::uint16_t bits) {
  const std::uint32_t body = (bits & 0x7fffu) << 13;  // exponent and fraction where f32 has them
  const std::uint32_t normal = body + (112u << 23);   // biases are 127 and 15
  const std::uint32_t special = body | 0x7f800000u;   // infinity, or a NaN with its payload
  const auto subnormal = std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(bits & 0x3ffu)) * 0x1p-24f);
  std::uint32_t result = select(body < (1u << 23), subnormal, normal);
  result = select(body >= (31u << 23), special, result);
  return std::bit_cast<float>(result | (bits & 0x8000u) << 16);
}

inline float widen_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

template <class Integer>
Integer saturate(double value) {
  // Both limits plus or minus 1 that are exact doubles: -2^63 and 2^63 for i64.
  constexpr double kLow = static_cast<double>(std::numeric_limits<Integer>::min());
  constexpr double kAbove = 2.0 * static_cast<double>(Integer(1) << (std::numeric_limits<Integer>::digits - 1));
  const double rounded = std::nearbyint(value);
  if (std::isnan(value)) return 0;
  if (rounded < kLow) return std::numeric_limits<Integer>::min();
  if (rounded >= kAbove) return std::numeric_limits<Integer>::max();
  return static_cast<Integer>(rounded);
}

// How each dtype is stored and converted: Bits is what lies in memory.
template <class Value>
struct NativeFloat {
  using Bits = Value;
  template <class Wide>
  static Wide widen(Bits bits) {
    return static_cast<Wide>(bits);
  }
  template <class Wide>
  static Bits narrow(Wide value) {
    return static_cast<Bits>(value);
  }
};
template <class Integer>
struct NativeInteger {
  using Bits = Integer;
  template <class Wide>
  static Wide widen(Bits bits) {
    return static_cast<Wide>(bits);
  }
  template <class Wide>
  static Bits narrow(Wide value) {
    return saturate<Integer>(static_cast<double>(value));
  }
};
template <int kFraction, float (*kWiden)(std::uint16_t)>
struct Float16Bits {
  using Bits = std::uint16_t;
  template <class Wide>
  static Wide widen(Bits bits) {
    return static_cast<Wide>(kWiden(bits));
  }
  template <class Wide>
  static Bits narrow(Wide value) {
    return culprit::narrow<kFraction>(value);
  }
};
using F16 = Float16Bits<kF16Fraction, widen_f16>;
using Bf16 = Float16Bits<kBf16Fraction, widen_bf16>;
struct Boolean {
  using Bits = std::uint8_t;
  template <class Wide>
  static Wide widen(Bits bits) {
    return bits != 0 ? Wide(1) : Wide(0);
  }
  template <class Wide>
  static Bits narrow(Wide value) {
    return value != 0 ? 1 : 0;
  }  // NaN is not 0
};

/// Calls use(codec) with the codec of `dtype`: the one place that lists them.
template <class Use>
auto with_codec(DType dtype, Use&& use) {
  switch (dtype) {
    case DType::f64:
      return use(NativeFloat<double>{});
    case DType::f32:
      return use(NativeFloat<float>{});
    case DType::f16:
      return use(F16{});
    case DType::bf16:
      return use(Bf16{});
    case DType::i64:
      return use(NativeInteger<std::int64_t>{});
    case DType::i32:
      return use(NativeInteger<std::int32_t>{});
    case DType::u32:
      return use(NativeInteger<std::uint32_t>{});
    case DType::u8:
      return use(NativeInteger<std::uint8_t>{});
    case DType::boolean:
      break;
  }
  return use(Boolean{});
}

template <class Wide>
void load_all(DType dtype, const void* source, std::size_t count, Wide* out) {
  with_codec(dtype, [&](auto codec) {
    using Codec = decltype(codec);
    using Bits = typename Codec::Bits;
    const auto* bytes = static_cast<const unsigned char*>(source);
    for (std::size_t i = 0; i < count; ++i) {
      Bits bits;
      std::memcpy(&bits, bytes + i * sizeof(Bits), sizeof(Bits));  // mapped files align to nothing
      out[i] = Codec::template widen<Wide>(bits);
    }
  });
}

template <class Wide>
void store_all(DType dtype, const Wide* source, std::size_t count, void* out) {
  with_codec(dtype, [&](auto codec) {
    using Codec = decltype(codec);
    using Bits = typename Codec::Bits;
    auto* bytes = static_cast<unsigned char*>(out);
    for (std::size_t i = 0; i < count; ++i) {
      const Bits bits = Codec::narrow(source[i]);
      std::memcpy(bytes + i * sizeof(Bits), &bits, sizeof(Bits));
    }
  });
}

/// Sign and rank of a value among the representable numbers of one sign: zero is 0, the smallest subnormal 1, and so on to infinity.
struct Rank {
  bool negative;
  std::uint64_t magnitude;
};
Rank rank_of(DType dtype, double value) {
  return with_codec(dtype, [&](auto codec) -> Rank {
    using Codec = decltype(codec);
    using Bits = typename Codec::Bits;
    const Bits bits = Codec::narrow(value);
    if constexpr (std::is_same_v<Codec, NativeInteger<Bits>> || std::is_same_v<Codec, Boolean>) {
      const bool negative = bits < Bits(0);
      const auto wide = static_cast<std::uint64_t>(bits);
      return {negative, negative ? std::uint64_t{0} - wide : wide};
    } else {
      std::uint64_t raw = 0;
      std::memcpy(&raw, &bits, sizeof(bits));  // little-endian, as all formats here
      const auto sign = std::uint64_t{1} << (sizeof(Bits) * 8 - 1);
      return {(raw & sign) != 0, raw & (sign - 1)};
    }
  });
}
static_assert(std::endian::native == std::endian::little, "file formats and bit views here assume a little-endian machine");
}  // namespace

std::size_t size_of(DType dtype) {
  return with_codec(dtype, [](auto codec) { return sizeof(typename decltype(codec)::Bits); });
}

std::string_view name_of(DType dtype) {
  for (const auto& name : kNames)
    if (name.dtype == dtype) return name.text;
  assert(false && "a dtype without a name");
  return {};
}

Result<DType> parse_dtype(std::string_view name) {
  for (const auto& known : kNames)
    if (known.text == name) return known.dtype;
  for (const auto& known : kOtherNames)
    if (known.text == name) return known.dtype;
  return fail("dtype-unknown", fmt::format("expected f64, f32, f16, bf16, i64, i32, u32, u8 or bool, got \"{}\"", name));
}

bool is_float(DType dtype) { return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16; }

double load(DType dtype, const void* p) {
  double value = 0;
  load_all(dtype, p, 1, &value);
  return value;
}

void store(DType dtype, void* p, double value) { store_all(dtype, &value, 1, p); }

double round_to(DType dtype, double value) {
  return with_codec(dtype, [&](auto codec) { return decltype(codec)::template widen<double>(decltype(codec)::narrow(value)); });
}

void load_many(DType dtype, const void* source, std::size_t count, double* out) { load_all(dtype, source, count, out); }
void load_many(DType dtype, const void* source, std::size_t count, float* out) { load_all(dtype, source, count, out); }
void store_many(DType dtype, const double* source, std::size_t count, void* out) { store_all(dtype, source, count, out); }
void store_many(DType dtype, const float* source, std::size_t count, void* out) { store_all(dtype, source, count, out); }

float f16_to_f32(std::uint16_t bits) { return widen_f16(bits); }
float bf16_to_f32(std::uint16_t bits) { return widen_bf16(bits); }
std::uint16_t f64_to_f16(double value) { return narrow<kF16Fraction>(value); }
std::uint16_t f64_to_bf16(double value) { return narrow<kBf16Fraction>(value); }

Rounding rounding_of(DType dtype) {
  switch (dtype) {
    // 2^-1075 is below the smallest double and rounds to 0: nothing computed in f64 can see it.
    case DType::f64:
      return {.unit = 0x1p-53, .half_subnormal = 0, .largest = std::numeric_limits<double>::max()};
    case DType::f32:
      return {.unit = 0x1p-24, .half_subnormal = 0x1p-150, .largest = 0x1.fffffep127};
    case DType::f16:
      return {.unit = 0x1p-11, .half_subnormal = 0x1p-25, .largest = 65504};
    case DType::bf16:
      return {.unit = 0x1p-8, .half_subnormal = 0x1p-134, .largest = 0x1.fep127};
    default:
      break;
  }
  assert(false && "rounding_of needs a float dtype");
  return {};
}

std::uint64_t ulp_distance(DType dtype, double expected, double actual) {
  if (std::isnan(expected) || std::isnan(actual))
    return std::isnan(expected) && std::isnan(actual) ? 0 : std::numeric_limits<std::uint64_t>::max();
  const Rank from = rank_of(dtype, expected);
  const Rank to = rank_of(dtype, actual);
  if (from.negative != to.negative) return from.magnitude + to.magnitude;
  return from.magnitude > to.magnitude ? from.magnitude - to.magnitude : to.magnitude - from.magnitude;
}

}  // namespace culprit
