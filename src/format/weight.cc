#include "format/weight.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <span>

#include "base/hash.h"
#include "base/pool.h"

namespace culprit {
namespace {
constexpr std::int64_t kBlockElements = 1 << 14;  // what one thread converts at a time: fits the second-level cache
constexpr std::int64_t kHashElements = 1 << 20;   // converted by all threads, then hashed by one

struct Extent {
  std::int64_t rows;
  std::int64_t columns;
};
Extent extent_of(const Shape& shape) {
  assert(!shape.empty());
  std::int64_t rows = 1;
  for (std::size_t axis = 0; axis + 1 < shape.size(); ++axis) rows *= shape[axis];
  return {rows, shape.back()};
}

/// The quants of one row as bytes, from its little-endian bit stream.
void unpack(const std::byte* stream, int bits, std::int64_t count, std::uint8_t* out) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(stream);
  if (bits == 8) {
    std::memcpy(out, bytes, static_cast<std::size_t>(count));
    return;
  }
  if (bits == 4 && count % 2 == 0) {
    for (std::int64_t i = 0; i < count / 2; ++i) {
      out[2 * i] = bytes[i] & 15;
      out[2 * i + 1] = static_cast<std::uint8_t>(bytes[i] >> 4);
    }
    return;
  }
  const auto mask = (1u << bits) - 1;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bit = i * bits;
    const auto shift = static_cast<unsigned>(bit % 8);
    unsigned window = bytes[bit / 8];
    if (shift + bits > 8) window |= static_cast<unsigned>(bytes[bit / 8 + 1]) << 8;
    out[i] = static_cast<std::uint8_t>(window >> shift & mask);
  }
}

/// out = Wide(scale) * q + Wide(bias), rounded to f32 at the end.
template <class Wide>
void dequantise(const std::uint8_t* quants, const Wide* scales, const Wide* biases, std::int64_t columns, std::int64_t group, float* out) {
  for (std::int64_t begin = 0; begin < columns; begin += group) {
    const auto end = std::min(begin + group, columns);
    const Wide scale = scales[begin / group];
    const Wide bias = biases[begin / group];
    for (auto i = begin; i < end; ++i) out[i] = static_cast<float>(scale * static_cast<Wide>(static_cast<int>(quants[i])) + bias);
  }
}

/// Converts row after row: the buffers are made once.
class RowReader {
 public:
  RowReader(const Weight& weight, std::int64_t columns)
      : weight_(weight),
        columns_(columns),
        groups_(weight.scales.dim(-1)),
        row_bytes_(weight.packed.dim(-1) * 4),
        quants_(static_cast<std::size_t>(columns)),
        // A scale of 11 or fewer bits times a quant of at most 8 is exact in f32, and the sum rounds once: f32 is enough. A wider scale
        // goes through f64, where the product is exact too.
        narrow_(size_of(weight.scales.dtype()) == 2 && size_of(weight.biases.dtype()) == 2),
        f32_(narrow_ ? 2 * static_cast<std::size_t>(groups_) : 0),
        f64_(narrow_ ? 0 : 2 * static_cast<std::size_t>(groups_)) {}

  void read(std::int64_t row, float* out) {
    unpack(weight_.packed.contiguous_bytes().data() + row * row_bytes_, weight_.bits, columns_, quants_.data());
    narrow_ ? read_as(f32_, row, out) : read_as(f64_, row, out);
  }

 private:
  template <class Wide>
  void read_as(std::vector<Wide>& buffer, std::int64_t row, float* out) {
    auto* scales = buffer.data();
    auto* biases = scales + groups_;
    load_groups(weight_.scales, row, scales);
    load_groups(weight_.biases, row, biases);
    dequantise(quants_.data(), scales, biases, columns_, weight_.group, out);
  }
  template <class Wide>
  void load_groups(const Tensor& tensor, std::int64_t row, Wide* out) const {
    const auto skip = row * groups_ * static_cast<std::int64_t>(size_of(tensor.dtype()));
    load_many(tensor.dtype(), tensor.contiguous_bytes().data() + skip, static_cast<std::size_t>(groups_), out);
  }

  const Weight& weight_;
  std::int64_t columns_;
  std::int64_t groups_;
  std::int64_t row_bytes_;
  std::vector<std::uint8_t> quants_;
  bool narrow_;
  std::vector<float> f32_;
  std::vector<double> f64_;
};

std::int64_t rows_per(std::int64_t elements, std::int64_t columns) {
  return std::max<std::int64_t>(1, elements / std::max<std::int64_t>(1, columns));
}

void rows_in_parallel(const Weight& weight, std::int64_t begin, std::int64_t end, std::int64_t columns, float* out) {
  const auto grain = static_cast<std::size_t>(rows_per(kBlockElements, columns));
  parallel_for(static_cast<std::size_t>(end - begin), grain, [&](std::size_t first, std::size_t last) {
    const auto low = static_cast<std::int64_t>(first);
    weight.rows_f32(begin + low, begin + static_cast<std::int64_t>(last), out + low * columns);
  });
}
}  // namespace

Shape Weight::shape() const {
  if (!quantized()) return dense.shape();
  auto shape = scales.shape();
  shape.back() *= group;
  return shape;
}

void Weight::rows_f32(std::int64_t begin, std::int64_t end, float* out) const {
  const auto [rows, columns] = extent_of(shape());
  assert(0 <= begin && begin <= end && end <= rows);
  if (begin == end || columns == 0) return;
  if (!quantized()) {
    const auto source = dense.contiguous();
    const auto skip = begin * columns * static_cast<std::int64_t>(size_of(source.dtype()));
    load_many(source.dtype(), source.contiguous_bytes().data() + skip, static_cast<std::size_t>((end - begin) * columns), out);
    return;
  }
  RowReader reader(*this, columns);
  for (auto row = begin; row < end; ++row) reader.read(row, out + (row - begin) * columns);
}

Tensor Weight::to_f32() const {
  if (!quantized() && dense.dtype() == DType::f32) return dense.contiguous();
  auto result = Tensor::zeros(DType::f32, shape());
  const auto [rows, columns] = extent_of(result.shape());
  rows_in_parallel(*this, 0, rows, columns, reinterpret_cast<float*>(result.mutable_bytes().data()));
  return result;
}

std::string Weight::hash_f32() const {
  if (!quantized() && dense.dtype() == DType::f32) return xxh3_128(dense.contiguous().contiguous_bytes());
  const auto [rows, columns] = extent_of(shape());
  const auto step = std::min(rows, rows_per(kHashElements, columns));
  std::vector<float> block(static_cast<std::size_t>(step * columns));
  Xxh3Stream hash;
  for (std::int64_t row = 0; row < rows; row += step) {
    const auto end = std::min(rows, row + step);
    rows_in_parallel(*this, row, end, columns, block.data());
    hash.add(std::as_bytes(std::span(block).first(static_cast<std::size_t>((end - row) * columns))));
  }
  return hash.finish();
}

}  // namespace culprit
