#pragma once
// Element types and exact conversions. Every conversion to a narrower type rounds once, to nearest, ties to even (IEEE 754-2019, 4.3.1).
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"

namespace culprit {

enum class DType : std::uint8_t { f64, f32, f16, bf16, i64, i32, u32, u8, boolean };

[[nodiscard]] std::size_t size_of(DType dtype);
/// "f64", "f32", "f16", "bf16", "i64", "i32", "u32", "u8", "bool"
[[nodiscard]] std::string_view name_of(DType dtype);
/// Accepts name_of's names and float32, float16, bfloat16, float64. Error id: dtype-unknown.
[[nodiscard]] Result<DType> parse_dtype(std::string_view name);
[[nodiscard]] bool is_float(DType dtype);

/// The value at `p` as a double: exact for all but i64 beyond 2^53. `p` need not be aligned.
[[nodiscard]] double load(DType dtype, const void* p);
/// Rounds once to `dtype`. Integers: saturate, NaN becomes 0, ties to even. boolean: value != 0.
void store(DType dtype, void* p, double value);
/// store then load.
[[nodiscard]] double round_to(DType dtype, double value);
/// Whole arrays, contiguous; the fast path of load and store.
void load_many(DType dtype, const void* source, std::size_t count, double* out);
void load_many(DType dtype, const void* source, std::size_t count, float* out);
void store_many(DType dtype, const double* source, std::size_t count, void* out);
void store_many(DType dtype, const float* source, std::size_t count, void* out);

[[nodiscard]] float f16_to_f32(std::uint16_t bits);
[[nodiscard]] float bf16_to_f32(std::uint16_t bits);
[[nodiscard]] std::uint16_t f64_to_f16(double value);   // one rounding, not via f32
[[nodiscard]] std::uint16_t f64_to_bf16(double value);  // one rounding, not via f32

/// The constants of a float dtype, the one table that all bounds use (Higham, Accuracy and Stability, 2nd ed., table 2.1).
struct Rounding {
  double unit;            // u: f64 2^-53, f32 2^-24, f16 2^-11, bf16 2^-8
  double half_subnormal;  // eta: half the smallest subnormal: f64 2^-1075 (0 in double), f32 2^-150, f16 2^-25, bf16 2^-134
  double largest;         // largest finite value
};
/// `dtype` must be a float dtype.
[[nodiscard]] Rounding rounding_of(DType dtype);

/// Distance in units in the last place between two values, each rounded to `dtype`, counting representable numbers: -0 is +0, infinity is
/// the one after the largest. NaN gives UINT64_MAX, or 0 when both are NaN.
[[nodiscard]] std::uint64_t ulp_distance(DType dtype, double expected, double actual);

}  // namespace culprit
