#include "decode/linear_kernel.h"

#include <cstring>
#include <type_traits>
#include <utility>

namespace culprit {
namespace baseline {
namespace {
#include "decode/linear_kernel.inc"
}
}  // namespace baseline

// Attributes on single functions would come too late: the compiler splits vectors that the target lacks before it inlines.
#if defined(__x86_64__) && defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#define CULPRIT_HAS_AVX2
#elif defined(__x86_64__) && defined(__GNUC__)
#pragma GCC push_options
#pragma GCC target("avx2")
#define CULPRIT_HAS_AVX2
#endif
#ifdef CULPRIT_HAS_AVX2
namespace avx2 {
namespace {
#include "decode/linear_kernel.inc"
}
}  // namespace avx2
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

LinearKernel linear_kernel() {
#ifdef CULPRIT_HAS_AVX2
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  if (has_avx2) return avx2::run;
#endif
  return baseline::run;
}

LinearKernel linear_kernel_baseline() { return baseline::run; }

}  // namespace culprit
