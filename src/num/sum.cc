#include "num/sum.h"

#include <cassert>

namespace culprit {

// Algorithm 5.3 (Dot2) of Ogita, Rump and Oishi.
double dot2(std::span<const double> x, std::span<const double> y) {
  assert(x.size() == y.size());
  double high = 0;
  double low = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto product = two_product(x[i], y[i]);
    const auto sum = two_sum(high, product.value);
    high = sum.value;
    low += sum.error + product.error;
  }
  return std::isfinite(high) ? high + low : high;
}

}  // namespace culprit
