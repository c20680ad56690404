#include "format/npy.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/test_dir.h"

namespace culprit {
namespace {

using Values = std::vector<double>;

/// A file of that version, header and data, laid out as NumPy's format description says (numpy.lib.format).
std::string npy_of(int version, const std::string& header, const std::string& data) {
  std::string text = "\x93NUMPY";
  text += static_cast<char>(version);
  text += '\0';
  const auto length = static_cast<std::uint32_t>(header.size());
  text.append(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4);
  return text + header + data;
}
template <class T>
std::string data_of(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

Result<Tensor> read_text(const TestDir& dir, const std::string& text) {
  if (auto written = write_file_whole(dir / "a.npy", text); !written) return tl::unexpected(written.error());
  return read_npy(dir / "a.npy");
}

TEST(Npy, ComesBackInEveryDtypeAndRank) {
  const TestDir dir;
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::i64, DType::i32, DType::u32, DType::u8, DType::boolean})
    for (const Shape& shape : {Shape{}, Shape{6}, Shape{2, 3}, Shape{1, 2, 3, 1}, Shape{0, 4}}) {
      Values values(static_cast<std::size_t>(element_count(shape)));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = dtype == DType::boolean ? static_cast<double>(i % 2) : static_cast<double>(i);
      ASSERT_TRUE(write_npy(dir / "a.npy", Tensor::from_values(dtype, shape, values)));
      const auto tensor = read_npy(dir / "a.npy");
      ASSERT_TRUE(tensor) << to_string(tensor.error());
      EXPECT_EQ(tensor->dtype(), dtype);
      EXPECT_EQ(tensor->shape(), shape);
      EXPECT_EQ(tensor->values(), values);
    }
}

TEST(Npy, WritesWhatNumpyWrites) {
  const TestDir dir;
  ASSERT_TRUE(write_npy(dir / "a.npy", Tensor::from_values(DType::f32, {3}, Values{1, 2, 3})));
  // numpy.save of numpy.array([1, 2, 3], dtype="<f4")
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
  header.resize(117, ' ');
  EXPECT_EQ(read_file(dir / "a.npy").value(), npy_of(1, header + '\n', data_of({1.0f, 2.0f, 3.0f})));
}

TEST(Npy, StridedIsWrittenInLogicalOrderAndBf16AsF32) {
  const TestDir dir;
  const auto tensor = Tensor::from_values(DType::bf16, {2, 3}, Values{0, 1, 2, 3, 4, 5}).transposed(0, 1);
  ASSERT_TRUE(write_npy(dir / "a.npy", tensor));
  const auto back = read_npy(dir / "a.npy").value();
  EXPECT_EQ(back.dtype(), DType::f32);
  EXPECT_EQ(back.values(), tensor.values());
}

TEST(Npy, FortranOrderIsAView) {
  const TestDir dir;
  const auto tensor =
      read_text(dir, npy_of(2, "{'shape': (2, 3), 'fortran_order': True, 'descr': '<i4'}\n", data_of<std::int32_t>({0, 1, 2, 3, 4, 5})));
  ASSERT_TRUE(tensor) << to_string(tensor.error());
  EXPECT_EQ(tensor->layout().strides, (Shape{1, 2}));
  EXPECT_EQ(tensor->values(), (Values{0, 2, 4, 1, 3, 5}));
}

TEST(Npy, TakesEveryVersionAndSpelling) {
  const TestDir dir;
  for (const int version : {1, 2, 3})
    for (const char* header :
         {"{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }\n", "{\"descr\":\"=f8\",\"fortran_order\":False,\"shape\":(1)}"}) {
      const auto tensor = read_text(dir, npy_of(version, header, data_of({2.5})));
      ASSERT_TRUE(tensor) << to_string(tensor.error());
      EXPECT_EQ(tensor->values(), Values{2.5});
    }
}

struct Malformed {
  const char* why;
  std::string text;
  const char* message;
};

TEST(Npy, RefusesMalformedFiles) {
  const auto header = [](const char* descr, const char* order, const char* shape) {
    return std::string("{'descr': ") + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
  };
  const auto with = [&](const char* descr, const char* order, const char* shape) {
    return npy_of(1, header(descr, order, shape), std::string(8, '\0'));
  };
  const std::string good = with("'<f8'", "False", "(1,)");
  const Malformed cases[] = {
      {"empty", "", "magic"},
      {"other file", "PK\x03\x04", "magic"},
      {"no version", good.substr(0, 6), "version"},
      {"version 0", npy_of(0, header("'<f8'", "False", "(1,)"), ""), "expected version 1, 2 or 3, got 0"},
      {"version 4", npy_of(4, header("'<f8'", "False", "(1,)"), ""), "got 4"},
      {"no length", good.substr(0, 9), "2 bytes of header length"},
      {"truncated header", good.substr(0, 30), "bytes remain"},
      {"truncated data", good.substr(0, good.size() - 1), "needs 8 bytes, 7 remain"},
      {"data left over", good + "x", "needs 8 bytes, 9 remain"},
      {"big-endian", with("'>f8'", "False", "(1,)"), "dtype >f8 is not supported"},
      {"complex", with("'<c8'", "False", "(1,)"), "not supported"},
      {"no order for many bytes", with("'|f8'", "False", "(1,)"), "not supported"},
      {"no dtype", with("''", "False", "(1,)"), "not supported"},
      {"structured", with("[('x', '<f8')]", "False", "(1,)"), "not a dict"},
      {"order is a number", with("'<f8'", "0", "(1,)"), "not a dict"},
      {"negative dimension", with("'<f8'", "False", "(-1,)"), "not a dict"},
      {"dimension beyond 63 bits", with("'<f8'", "False", "(9223372036854775808,)"), "not a dict"},
      {"count overflows", with("'<f8'", "False", "(4294967296, 4294967296)"), "more elements than can be"},
      {"bytes overflow", with("'<f8'", "False", "(4611686018427387904,)"), "more elements than can be"},
      {"shape is open", npy_of(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1,", std::string(8, '\0')), "not a dict"},
      {"string is open", npy_of(1, "{'descr': '<f8", std::string(8, '\0')), "not a dict"},
      {"key is missing", npy_of(1, "{'descr': '<f8', 'shape': (1,), }\n", std::string(8, '\0')), "not a dict"},
      {"key is unknown", npy_of(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), 'x': 1}\n", std::string(8, '\0')),
       "not a dict"},
      {"text after the dict", npy_of(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), } x\n", std::string(8, '\0')),
       "not a dict"},
      {"commas are missing", npy_of(1, "{'descr': '<f8' 'fortran_order': False 'shape': (1)}\n", std::string(8, '\0')), "not a dict"},
  };
  const TestDir dir;
  ASSERT_TRUE(read_text(dir, good));
  for (const auto& c : cases) {
    const auto tensor = read_text(dir, c.text);
    ASSERT_FALSE(tensor) << c.why;
    EXPECT_EQ(tensor.error().id, "npy-invalid") << c.why;
    EXPECT_NE(tensor.error().message.find(c.message), std::string::npos) << c.why << ": " << tensor.error().message;
  }
  EXPECT_EQ(read_npy(dir / "absent").error().id, "file-missing");
}

}  // namespace
}  // namespace culprit
