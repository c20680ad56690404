#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

namespace culprit {
namespace {

constexpr DType kAll[] = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u32, DType::u8, DType::boolean};
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

/// 0, 1, 2, ... in storage order: the value of an element is its place.
Tensor ramp(DType dtype, Shape shape) {
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  std::iota(values.begin(), values.end(), 0.0);
  return Tensor::from_values(dtype, std::move(shape), values);
}

/// A view of `elements` f32 numbers 0, 1, 2, ...
Result<Tensor> view(std::int64_t elements, Shape shape, Shape strides, std::int64_t offset) {
  const auto storage = ramp(DType::f32, {elements});
  const auto keep = std::make_shared<Tensor>(storage);
  return Tensor::wrap(keep, storage.contiguous_bytes(),
                      {.dtype = DType::f32, .shape = std::move(shape), .strides = std::move(strides), .offset = offset, .storage_id = 7});
}

/// values() by definition, element by element.
std::vector<double> values_by_index(const Tensor& tensor) {
  std::vector<double> values;
  for_each_index(tensor.shape(), [&](std::span<const std::int64_t> index) { values.push_back(tensor.at(index)); });
  return values;
}

using Values = std::vector<double>;

TEST(Shape, CountsAndStrides) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({2, 0, 3}), 0);
  EXPECT_EQ(row_major_strides({2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(row_major_strides({2, 0, 4}), (Shape{4, 4, 1}));
  EXPECT_EQ(row_major_strides({}), Shape{});
  EXPECT_EQ(to_string(Shape{1, 9, 1, 64}), "[1, 9, 1, 64]");
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(checked_count({2, 3}), 6);
  EXPECT_EQ(checked_count({0, 5}), 0);
  EXPECT_EQ(checked_count({-1}), std::nullopt);
  EXPECT_EQ(checked_count({0, -1}), std::nullopt);
  EXPECT_EQ(checked_count({std::int64_t{1} << 32, std::int64_t{1} << 31}), std::nullopt);
  EXPECT_EQ(checked_count({std::int64_t{1} << 32, 0, std::int64_t{1} << 31}), std::nullopt) << "its strides would overflow";
}

TEST(Layout, ContiguousMeansRowMajorWithoutGaps) {
  const auto contiguous = [](Shape shape, Shape strides) {
    return Layout{DType::f32, std::move(shape), std::move(strides), 0, 0}.is_contiguous();
  };
  EXPECT_TRUE(contiguous({2, 3}, {3, 1}));
  EXPECT_TRUE(contiguous({2, 1, 3}, {3, 99, 1}));
  EXPECT_TRUE(contiguous({1, 1}, {-5, 0}));
  EXPECT_TRUE(contiguous({}, {}));
  EXPECT_TRUE(contiguous({2, 0}, {7, 7}));
  EXPECT_FALSE(contiguous({2, 3}, {1, 2}));
  EXPECT_FALSE(contiguous({2, 3}, {4, 1}));
  EXPECT_FALSE(contiguous({3}, {0}));
  EXPECT_FALSE(contiguous({3}, {-1}));
  EXPECT_FALSE(contiguous({3}, {2}));
}

TEST(Wrap, ReadsThroughAnyStrides) {
  EXPECT_EQ(view(6, {2, 3}, {3, 1}, 0)->values(), (Values{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(view(6, {3, 2}, {1, 3}, 0)->values(), (Values{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(view(6, {2, 3}, {-3, -1}, 5)->values(), (Values{5, 4, 3, 2, 1, 0})) << "reversed";
  EXPECT_EQ(view(6, {2, 3}, {3, -1}, 2)->values(), (Values{2, 1, 0, 5, 4, 3})) << "rows reversed";
  EXPECT_EQ(view(6, {2, 3}, {0, 1}, 1)->values(), (Values{1, 2, 3, 1, 2, 3})) << "broadcast";
  EXPECT_EQ(view(6, {2, 2}, {0, 0}, 4)->values(), (Values{4, 4, 4, 4}));
  EXPECT_EQ(view(6, {2, 2}, {1, 1}, 2)->values(), (Values{2, 3, 3, 4})) << "overlapping";
  EXPECT_EQ(view(6, {3}, {2}, 1)->values(), (Values{1, 3, 5}));
  EXPECT_EQ(view(6, {}, {}, 5)->values(), Values{5});
  EXPECT_EQ(view(6, {1, 2}, {kMax, 1}, 4)->values(), (Values{4, 5})) << "the stride of one element is of no account";
  EXPECT_EQ(view(6, {0}, {kMax}, 6)->values(), Values{});
  EXPECT_EQ(view(0, {0, 3}, {3, 1}, 0)->values(), Values{});
}

struct Rejected {
  const char* why;
  Shape shape;
  Shape strides;
  std::int64_t offset;
};

TEST(Wrap, RefusesWhatReachesOutside) {
  const Rejected cases[] = {
      {"one too many", {7}, {1}, 0},
      {"offset pushes the end out", {6}, {1}, 1},
      {"offset at the end", {1}, {1}, 6},
      {"negative offset", {1}, {1}, -1},
      {"empty, but negative offset", {0}, {1}, -1},
      {"empty, but offset beyond", {0}, {1}, 7},
      {"empty, and the smallest offset", {0}, {1}, kMin},
      {"negative stride below the begin", {2, 3}, {-3, -1}, 4},
      {"rank and strides disagree", {2, 3}, {1}, 0},
      {"negative dimension", {-2}, {1}, 0},
      {"negative dimensions whose product is positive", {-2, -3}, {1, 1}, 0},
      {"span overflows", {3}, {kMax}, 0},
      {"span overflows downward", {3}, {kMin}, 0},
      {"sum of spans overflows", {2, 2}, {kMax, kMax}, 0},
      {"wraps round to inside", {2, 2, 2}, {kMax, kMax, 2}, 0},
      {"ends at the largest number", {2}, {kMax}, 0},
      {"count overflows", {kMax, kMax}, {0, 0}, 0},
      {"largest offset", {1}, {1}, kMax},
      {"smallest offset", {1}, {1}, kMin},
  };
  for (const auto& c : cases) {
    const auto tensor = view(6, c.shape, c.strides, c.offset);
    ASSERT_FALSE(tensor) << c.why;
    EXPECT_EQ(tensor.error().id, "tensor-layout") << c.why;
  }
}

TEST(Wrap, CountsOnlyWholeElements) {
  const std::vector<std::byte> bytes(7);
  const Layout two{.dtype = DType::f32, .shape = {2}, .strides = {1}};
  EXPECT_FALSE(Tensor::wrap(nullptr, bytes, two));
  const Layout one{.dtype = DType::f32, .shape = {1}, .strides = {1}};
  EXPECT_TRUE(Tensor::wrap(nullptr, bytes, one));
}

TEST(Wrap, KeepsTheOwnerAlive) {
  auto owner = std::make_shared<std::vector<float>>(3, 1.5f);
  const std::weak_ptr<std::vector<float>> watch = owner;
  const auto bytes = std::as_bytes(std::span(*owner));
  {
    const auto tensor = Tensor::wrap(std::move(owner), bytes, {.dtype = DType::f32, .shape = {3}, .strides = {1}}).value();
    const auto part = tensor.sliced(0, 1, 2);
    EXPECT_FALSE(watch.expired());
    EXPECT_EQ(part.values(), Values{1.5});
  }
  EXPECT_TRUE(watch.expired());
}

TEST(Tensor, ZerosAndValuesOfEveryDtype) {
  for (const DType dtype : kAll) {
    EXPECT_EQ(Tensor::zeros(dtype, {2, 2}).values(), Values(4, 0.0)) << name_of(dtype);
    EXPECT_EQ(Tensor::from_values(dtype, {3}, Values{0, 1, 1}).values(), (Values{0, 1, 1})) << name_of(dtype);
  }
  EXPECT_EQ(Tensor::from_values(DType::bf16, {1}, Values{1 + 0x1p-8 + 0x1p-40}).values(), Values{1 + 0x1p-7}) << "one rounding";
  EXPECT_TRUE(Tensor().empty());
  EXPECT_TRUE(Tensor::zeros(DType::f32, {0, 3}).values().empty());
}

TEST(Tensor, AnUnalignedStorageIsRead) {
  std::vector<std::byte> bytes(9);
  const float numbers[] = {1.25f, -3};
  std::memcpy(bytes.data() + 1, numbers, sizeof(numbers));
  const auto tensor = Tensor::wrap(nullptr, std::span(bytes).subspan(1), {.dtype = DType::f32, .shape = {2}, .strides = {-1}, .offset = 1});
  EXPECT_EQ(tensor->values(), (Values{-3, 1.25}));
  EXPECT_EQ(tensor->at({0}), -3);
}

TEST(Tensor, SetWritesThroughViews) {
  auto tensor = Tensor::zeros(DType::f16, {2, 3});
  auto column = tensor.transposed(0, 1).sliced(0, 2, 3);
  column.set({0, 1}, 2049);  // between 2048 and 2050: ties to even
  EXPECT_EQ(tensor.values(), (Values{0, 0, 0, 0, 0, 2048}));
  auto row = tensor.sliced(0, 0, 1);
  std::memset(row.mutable_bytes().data(), 0xff, row.mutable_bytes().size());
  EXPECT_TRUE(std::isnan(tensor.at({0, 2})));
  EXPECT_EQ(tensor.at({1, 0}), 0);
}

TEST(Tensor, StorageIdsTellWhatAliases) {
  const auto x = Tensor::zeros(DType::f32, {2, 3});
  const auto id = x.layout().storage_id;
  EXPECT_NE(id, 0u);
  EXPECT_EQ(x.transposed(0, 1).layout().storage_id, id);
  EXPECT_EQ(x.sliced(1, 0, 1).layout().storage_id, id);
  EXPECT_EQ(x.reshaped({6}).layout().storage_id, id);
  EXPECT_EQ(x.contiguous().layout().storage_id, id);
  EXPECT_EQ(x.cast(DType::f32).layout().storage_id, id);
  EXPECT_NE(x.copy().layout().storage_id, id);
  EXPECT_NE(x.transposed(0, 1).contiguous().layout().storage_id, id);
  EXPECT_NE(x.cast(DType::f16).layout().storage_id, id);
  EXPECT_NE(Tensor::zeros(DType::f32, {2, 3}).layout().storage_id, id);
  EXPECT_EQ(x.with_storage_id(5).layout().storage_id, 5u);
}

TEST(Tensor, LinearValuesIgnoreStrides) {
  const auto transposed = view(6, {3, 2}, {1, 3}, 0).value();
  EXPECT_EQ(transposed.linear_values(6), (Values{0, 1, 2, 3, 4, 5}));
  EXPECT_NE(transposed.linear_values(6), transposed.values());
  const auto contiguous = view(6, {2, 2}, {2, 1}, 2).value();
  EXPECT_EQ(contiguous.linear_values(4), contiguous.values());
  const auto reversed = view(6, {6}, {-1}, 5).value();
  const auto linear = reversed.linear_values(3);
  EXPECT_EQ(linear[0], 5);
  EXPECT_TRUE(std::isnan(linear[1]) && std::isnan(linear[2])) << "beyond the storage";
  EXPECT_TRUE(std::isnan(view(6, {0}, {1}, 6)->linear_values(1)[0]));
}

TEST(Tensor, SlicesMayBeEmpty) {
  const auto x = ramp(DType::f32, {2, 3});
  for (const auto at : {0, 1, 2, 3}) {
    const auto none = x.sliced(-1, at, at);
    EXPECT_EQ(none.shape(), (Shape{2, 0}));
    EXPECT_TRUE(none.values().empty());
    EXPECT_TRUE(none.copy().values().empty());
    EXPECT_TRUE(none.contiguous_bytes().empty());
  }
}

// Random views by transposing, slicing and reversing; values, copies, casts and reshapes against reading element by element.
TEST(Tensor, AgreesWithReadingElementByElement) {
  std::mt19937 random(5);
  const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 3'000; ++round) {
    const DType dtype = kAll[below(std::size(kAll))];
    Shape shape;
    for (auto rank = below(5); rank > 0; --rank) shape.push_back(1 + below(4));
    auto tensor = ramp(dtype, shape);
    for (int step = 0; step < 3 && tensor.rank() > 0; ++step) {
      const int axis = static_cast<int>(below(tensor.rank()));
      if (below(2) == 0) {
        tensor = tensor.transposed(axis, static_cast<int>(below(tensor.rank())) - tensor.rank());
      } else {
        const auto begin = below(tensor.dim(axis));
        tensor = tensor.sliced(axis, begin, begin + 1 + below(tensor.dim(axis) - begin));
      }
    }
    if (tensor.rank() > 0 && below(2) == 0) {  // reverse an axis: another view of the same bytes
      auto layout = tensor.layout();
      const auto axis = static_cast<std::size_t>(below(tensor.rank()));
      layout.offset += (layout.shape[axis] - 1) * layout.strides[axis];
      layout.strides[axis] = -layout.strides[axis];
      const auto whole = ramp(dtype, shape);
      tensor = Tensor::wrap(std::make_shared<Tensor>(whole), whole.contiguous_bytes(), layout).value();
    }
    const auto expected = values_by_index(tensor);
    ASSERT_EQ(tensor.values(), expected) << to_string(tensor.shape()) << to_string(tensor.layout().strides);
    const auto copy = tensor.copy();
    ASSERT_TRUE(copy.layout().is_contiguous());
    ASSERT_EQ(copy.shape(), tensor.shape());
    ASSERT_EQ(values_by_index(copy), expected);
    ASSERT_EQ(values_by_index(tensor.cast(DType::f64)), expected);
    // Split and merge dimensions at random.
    Shape other;
    for (auto rest = tensor.count(); rest > 1;) {
      auto factor = 1 + below(rest);
      while (rest % factor != 0) ++factor;
      other.push_back(factor);
      rest /= factor;
    }
    const auto reshaped = tensor.reshaped(other);
    ASSERT_EQ(reshaped.shape(), other);
    ASSERT_EQ(values_by_index(reshaped), expected) << to_string(tensor.shape()) << to_string(tensor.layout().strides) << to_string(other);
  }
}

TEST(Tensor, ReshapesWithoutACopyWhereStridesAllow) {
  const auto shares = [](const Tensor& x, Shape shape) {
    return x.reshaped(std::move(shape)).layout().storage_id == x.layout().storage_id;
  };
  const auto x = ramp(DType::f32, {2, 3, 4});
  EXPECT_TRUE(shares(x, {24}));
  EXPECT_TRUE(shares(x, {6, 1, 4}));
  const auto heads_first = x.transposed(0, 1);  // [3, 2, 4]
  EXPECT_TRUE(shares(heads_first, {3, 2, 2, 2})) << "splits the last dimension";
  EXPECT_TRUE(shares(heads_first, {1, 3, 2, 4}));
  EXPECT_FALSE(shares(heads_first, {6, 4})) << "merges two that do not follow each other";
  EXPECT_TRUE(shares(x.sliced(2, 1, 3), {6, 2})) << "merges the outer two over a gap";
  EXPECT_FALSE(shares(x.sliced(2, 1, 3), {12}));
  EXPECT_TRUE(shares(view(6, {2, 3}, {-3, -1}, 5).value(), {6})) << "reversed as a whole";
  EXPECT_TRUE(shares(view(6, {2, 3}, {0, 0}, 1).value(), {3, 2})) << "one element, broadcast";
  EXPECT_TRUE(shares(Tensor::zeros(DType::f32, {0, 3}), {3, 0}));
}

TEST(Tensor, CastsRoundOnceAndKeepSpecialValues) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto x = Tensor::from_values(DType::f64, {5}, Values{1 + 0x1p-11 + 0x1p-40, 1e6, -infinity, -0.0, 0x1p-25});
  EXPECT_EQ(x.cast(DType::f16).values(), (Values{1 + 0x1p-10, infinity, -infinity, 0, 0}));
  EXPECT_TRUE(std::signbit(x.cast(DType::f16).at({3})));
  EXPECT_TRUE(std::isnan(Tensor::from_values(DType::f64, {1}, Values{std::nan("")}).cast(DType::bf16).at({0})));
  EXPECT_EQ(x.cast(DType::u8).values(), (Values{1, 255, 0, 0, 0}));
}

TEST(Tensor, CastsBlocksOfAnyLength) {
  for (const std::int64_t count : {1, 4'095, 4'096, 4'097, 10'000}) {
    const auto x = ramp(DType::f32, {count});
    EXPECT_EQ(x.cast(DType::i32).values(), x.values());
    EXPECT_EQ(x.cast(DType::f64).cast(DType::f32).values(), x.values());
  }
}

TEST(ForEachIndex, VisitsInRowMajorOrder) {
  std::vector<Shape> seen;
  for_each_index({2, 2}, [&](std::span<const std::int64_t> index) { seen.emplace_back(index.begin(), index.end()); });
  EXPECT_EQ(seen, (std::vector<Shape>{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));
  int visits = 0;
  for_each_index({}, [&](auto) { ++visits; });
  EXPECT_EQ(visits, 1);
  for_each_index({2, 0}, [&](auto) { ++visits; });
  EXPECT_EQ(visits, 1);
}

}  // namespace
}  // namespace culprit
