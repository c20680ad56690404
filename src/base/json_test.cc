#include "base/json.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "base/file.h"
#include "base/test_dir.h"

namespace culprit {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> doubles_of_every_size() {
  std::vector<double> values{
      0.0,       -0.0,      1, -1, 0.1, 5e-324, -5e-324, 0x1.fffffffffffffp-1023, 0x1p-1022, std::numeric_limits<double>::max(),
      kInfinity, -kInfinity};
  std::mt19937_64 random(1);
  while (values.size() < 20'000) {
    const auto value = std::bit_cast<double>(random());
    if (!std::isnan(value)) values.push_back(value);
  }
  return values;
}

TEST(Json, HexFloatsComeBackBitByBit) {
  for (const double value : doubles_of_every_size()) {
    const auto back = number_from(Json(hex_float(value)));
    ASSERT_TRUE(back) << hex_float(value);
    ASSERT_EQ(std::bit_cast<std::uint64_t>(*back), std::bit_cast<std::uint64_t>(value)) << hex_float(value);
  }
  EXPECT_EQ(hex_float(3.0), "0x1.8p+1");
}

TEST(Json, NumbersComeBackBitByBitThroughText) {
  for (const double value : doubles_of_every_size()) {
    const auto text = json_number(value).dump();
    const auto back = number_from(parse_json(text).value());
    ASSERT_TRUE(back) << text;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(*back), std::bit_cast<std::uint64_t>(value)) << text;
  }
}

TEST(Json, NanAndInfinitiesAreStrings) {
  EXPECT_EQ(json_number(std::nan("")).dump(), "\"nan\"");
  EXPECT_EQ(json_number(kInfinity).dump(), "\"inf\"");
  EXPECT_EQ(json_number(-kInfinity).dump(), "\"-inf\"");
  EXPECT_TRUE(std::isnan(number_from(json_number(std::nan(""))).value()));
  EXPECT_TRUE(std::isnan(number_from(Json(hex_float(std::nan("")))).value()));
}

TEST(Json, RefusesWhatIsNoNumber) {
  for (const auto& value :
       {Json("1.5"), Json(""), Json("0x"), Json("0x1.8"), Json("0xp1"), Json("0x1p"), Json("0x1p+"), Json("0x1.8.p1"), Json("0x1p1x"),
        Json("--inf"), Json("infinity"), Json("0x1p1024"), Json("0x1p-1075"), Json("0x1.00000000000001p+0"), Json("0x11111111111111111p+0"),
        Json("0x1p99999999999"), Json(true), Json(nullptr), Json::array({1})}) {
    const auto number = number_from(value);
    ASSERT_FALSE(number) << value.dump();
    EXPECT_EQ(number.error().id, "json-invalid");
  }
}

TEST(Json, KeepsTheOrderOfKeys) { EXPECT_EQ(parse_json(R"({"z":1,"a":2})").value().dump(), R"({"z":1,"a":2})"); }

TEST(Json, SaysWhereTextIsBroken) {
  for (const char* text : {"", "{", "[1,", "{\"a\":}", "nan", "1e999", "{} x", "\"\xff\""}) {
    const auto json = parse_json(text, "plan.json");
    ASSERT_FALSE(json) << text;
    EXPECT_EQ(json.error().id, "json-invalid");
    EXPECT_EQ(json.error().where, "plan.json");
  }
  EXPECT_EQ(parse_json("[1,]").error().message, "not JSON at byte 4 of 4");
}

TEST(Json, ReadsFiles) {
  const TestDir dir;
  ASSERT_TRUE(write_file_whole(dir / "a.json", "[1]"));
  EXPECT_EQ(read_json_file(dir / "a.json").value(), Json::array({1}));
  EXPECT_EQ(read_json_file(dir / "b.json").error().id, "file-missing");
  ASSERT_TRUE(write_file_whole(dir / "a.json", "[1"));
  EXPECT_EQ(read_json_file(dir / "a.json").error().where, (dir / "a.json").string());
}

TEST(Json, GetFieldNamesWhatIsMissing) {
  const auto object = parse_json(R"({"id":3,"name":"x"})").value();
  EXPECT_EQ(get_field<int>(object, "id", "hello").value(), 3);
  EXPECT_EQ(get_field<int>(object, "ip", "hello").error().message, "hello: field 'ip' is missing");
  EXPECT_EQ(get_field<int>(object, "name", "hello").error().message, "hello: field 'name' has the wrong type");
  EXPECT_EQ(get_field<int>(Json(1), "id", "hello").error().id, "json-invalid");
}

}  // namespace
}  // namespace culprit
