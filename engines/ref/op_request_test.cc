// One op without a model: operands in any layout, faults, and operands that do not fit.
#include "engines/kit/op_request.h"

#include <gtest/gtest.h>

#include "base/test_dir.h"
#include "decode/facts_json.h"
#include "decode/model.h"
#include "decode/ops.h"
#include "engines/ref/ref_backend.h"
#include "format/safetensors.h"

namespace culprit::ref {
namespace {

using Operands = std::vector<std::pair<std::string, Tensor>>;

class OpRequest : public testing::Test {
 protected:
  static Tensor counted(const Shape& shape, DType dtype = DType::f32) {
    std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.25 + 0.125 * static_cast<double>((i * 37) % 101);
    return Tensor::from_values(dtype, shape, values);
  }
  Result<Json> ask(const std::string& op, const Operands& operands, Json fields = Json::object()) {
    const auto file = dir_ / "operands.safetensors";
    EXPECT_TRUE(write_safetensors(file, operands));
    Json request = {{"id", 1},
                    {"do", "op"},
                    {"op", op},
                    {"facts", to_json(facts_)},
                    {"dtype", "f32"},
                    {"file", file.string()},
                    {"out", (dir_ / "out.safetensors").string()}};
    request.update(fields);
    return kit::answer_op(backend_, request);
  }
  /// The output of an op that must succeed.
  Tensor output(const std::string& op, const Operands& operands, const Json& fields = Json::object()) {
    const auto answer = ask(op, operands, fields);
    if (!answer) throw std::runtime_error(to_string(answer.error()));
    return *Safetensors::open(answer->at("out").get<std::string>())->tensor("output");
  }
  std::string error_of(const std::string& op, const Operands& operands, const Json& fields = Json::object()) {
    const auto answer = ask(op, operands, fields);
    return answer ? std::string() : answer.error().id;
  }
  static std::vector<double> rounded(const Array& array) { return to_tensor(array, DType::f32).values(); }

  TestDir dir_;
  RefBackend backend_{"culprit-ref"};
  Facts facts_ = tiny_llama_facts();
  const Shape heads_ = {3, 6, 1, 8};  // [row, head, token, channel]
};

TEST_F(OpRequest, RotatesAtTheOffsetOfEachRow) {
  const auto x = counted(heads_);
  EXPECT_EQ(output("rope", {{"input.0", x}}, {{"offset", {5}}}).values(), rounded(rope(to_array(x), facts_.rope, {{5}, {5}, {5}})));
  EXPECT_EQ(output("rope", {{"input.0", x}}, {{"offset", {5}}, {"rank", 3}}).values(),
            rounded(rope(to_array(x), facts_.rope, {{5}, {5}, {5}})));
  EXPECT_EQ(output("rope", {{"input.0", x}}, {{"offset", {5, 0, 9}}}).values(), rounded(rope(to_array(x), facts_.rope, {{5}, {0}, {9}})));
}

TEST_F(OpRequest, ReadsOperandsInTheLayoutThatIsGiven) {
  // The same heads as a view with gaps, from element 7 on.
  const auto x = counted(heads_);
  auto storage = Tensor::zeros(DType::f32, {7 + 3 * 6 * 16});
  for_each_index(heads_, [&](std::span<const std::int64_t> i) { storage.set({7 + i[0] * 96 + i[1] * 16 + i[3]}, x.at(i)); });
  const Json layout = {{"shape", heads_}, {"strides", {96, 16, 16, 1}}, {"offset", 7}};
  const Json fields = {{"offset", {5}}, {"layouts", {{"input.0", layout}}}};
  const auto right = output("rope", {{"input.0", x}}, {{"offset", {5}}});
  EXPECT_EQ(output("rope", {{"input.0", storage}}, fields).values(), right.values());
  // A fault that needs a dense input sees the layout; one that reads views as dense breaks on it.
  auto faulty = fields;
  faulty["faults"] = {"F01:content=zero"};
  EXPECT_EQ(output("rope", {{"input.0", storage}}, faulty).values(), right.values());
  EXPECT_NE(output("rope", {{"input.0", x}}, {{"offset", {5}}, {"faults", {"F01:content=zero"}}}).values(), right.values());

  auto outside = fields;
  outside["layouts"]["input.0"]["offset"] = 16;  // its last element is one behind the storage
  EXPECT_EQ(error_of("rope", {{"input.0", storage}}, outside), "tensor-layout");
}

TEST_F(OpRequest, TakesTheParametersOfANode) {
  const auto x = counted({2, 3, 48});
  EXPECT_EQ(output("scale", {{"input.0", x}}, {{"factor", 2.5}}).values(), rounded(scale(to_array(x), 2.5)));
  EXPECT_EQ(output("softcap", {{"input.0", x}}, {{"factor", 3}}).values(), rounded(softcap(to_array(x), 3)));
  EXPECT_EQ(output("geglu", {{"input.0", x}, {"input.1", x}}).values(), rounded(geglu(to_array(x), to_array(x))));
  const auto weight = counted({48});
  EXPECT_EQ(output("rms_norm", {{"input.0", x}, {"weight", weight}}, {{"unit_offset", true}}).values(),
            rounded(rms_norm(to_array(x), weight.values(), facts_.norm_epsilon, true)));
  EXPECT_EQ(error_of("softcap", {{"input.0", x}}, {{"factor", 0}}), "plan-invalid");
  EXPECT_EQ(error_of("rope", {{"input.0", counted(heads_)}}, {{"offset", {5}}, {"rope_local", true}}), "plan-invalid");

  const auto matrix = counted({4, 48}), bias = counted({4});
  const auto plain = output("linear", {{"input.0", x}, {"weight", matrix}}),
             biased = output("linear", {{"input.0", x}, {"weight", matrix}, {"bias", bias}}),
             reversed = output("linear", {{"input.0", x}, {"weight", matrix}, {"bias", bias}}, {{"variant", "reversed"}});
  for (std::int64_t i = 0; i < 4; ++i) {
    // Multiples of 2^-6 below 2^12: each sum is exact.
    EXPECT_EQ(biased.at({1, 2, i}), plain.at({1, 2, i}) + bias.at({i}));
    EXPECT_EQ(reversed.at({1, 2, i}), biased.at({1, 2, i}));
  }
  EXPECT_EQ(error_of("linear", {{"input.0", x}, {"weight", matrix}, {"bias", counted({3})}}), "tensor-layout");
  EXPECT_EQ(error_of("add", {{"input.0", x}, {"input.1", x}, {"bias", bias}}), "plan-invalid");

  const auto q = counted({1, 2, 1, 8}), k = counted({1, 1, 4, 8});
  const auto windowed = output("sdpa", {{"input.0", q}, {"input.1", k}, {"input.2", k}}, {{"window", 1}});
  for (std::int64_t c = 0; c < 8; ++c) EXPECT_EQ(windowed.at({0, 1, 0, c}), k.at({0, 0, 3, c}));
  EXPECT_EQ(error_of("sdpa", {{"input.0", q}, {"input.1", k}, {"input.2", k}}, {{"window", -1}}), "plan-invalid");
}

TEST_F(OpRequest, TakesTheFormsOfGemma4) {
  const auto heads = counted({2, 4, 3, 8});
  const auto one = output("select_head", {{"input.0", heads}}, {{"head", 2}});
  EXPECT_EQ(one.shape(), (Shape{2, 3, 8}));
  EXPECT_EQ(one.values(), rounded(select_head(to_array(heads), 2)));
  EXPECT_EQ(error_of("select_head", {{"input.0", heads}}, {{"head", 4}}), "plan-invalid");
  EXPECT_EQ(error_of("select_head", {{"input.0", heads}}, {{"head", -1}}), "plan-invalid");
  EXPECT_EQ(error_of("select_head", {{"input.0", one}}), "tensor-layout");

  EXPECT_EQ(output("rms_norm", {{"input.0", heads}}, {{"unscaled", true}}).values(),
            rounded(rms_norm(to_array(heads), std::vector<double>(8, 1.0), facts_.norm_epsilon)));
  EXPECT_EQ(error_of("rms_norm", {{"input.0", heads}, {"weight", counted({8})}}, {{"unscaled", true}}), "plan-invalid");

  const auto scalar = counted({1});
  EXPECT_EQ(output("scale", {{"input.0", heads}, {"weight", scalar}}).values(), rounded(scale(to_array(heads), scalar.at({0}))));
  EXPECT_EQ(error_of("scale", {{"input.0", heads}, {"weight", scalar}}, {{"factor", 2}}), "plan-invalid");
  EXPECT_EQ(error_of("scale", {{"input.0", heads}, {"weight", counted({2})}}), "tensor-layout");

  const auto table = counted({97, 48});
  const auto split = output("embedding", {{"weight", table}}, {{"tokens", {{3, 96}}}, {"heads_out", 4}});
  EXPECT_EQ(split.shape(), (Shape{1, 4, 2, 12}));
  EXPECT_EQ(split.values(), rounded(split_heads(embedding(table, {{3, 96}}), 4)));
  EXPECT_EQ(error_of("embedding", {{"weight", table}}, {{"tokens", {{3}}}, {"heads_out", 5}}), "tensor-layout");
}

TEST_F(OpRequest, RunsTheOtherOps) {
  const auto x = counted({2, 3, 48});
  EXPECT_EQ(output("add", {{"input.0", x}, {"input.1", x}}).values(), rounded(add(to_array(x), to_array(x))));
  EXPECT_EQ(output("swiglu", {{"input.0", x}, {"input.1", x}}).values(), rounded(swiglu(to_array(x), to_array(x))));
  const auto weight = counted({48});
  EXPECT_EQ(output("rms_norm", {{"input.0", x}, {"weight", weight}}).values(),
            rounded(rms_norm(to_array(x), weight.values(), facts_.norm_epsilon)));
  const auto table = counted({97, 48});
  EXPECT_EQ(output("embedding", {{"weight", table}}, {{"tokens", {{3, 96}}}}).values(), rounded(embedding(table, {{3, 96}})));
  const auto flat = output("linear", {{"input.0", x}, {"weight", table}});
  EXPECT_EQ(flat.shape(), (Shape{2, 3, 97}));
  const auto split = output("linear", {{"input.0", x}, {"weight", counted({48, 48})}}, {{"heads_out", 6}});
  EXPECT_EQ(split.shape(), (Shape{2, 6, 3, 8}));
  EXPECT_EQ(output("linear", {{"input.0", split}, {"weight", table}}).shape(), flat.shape());

  const auto q = counted({2, 6, 2, 8}), k = counted({2, 3, 5, 8}), v = counted({2, 3, 5, 8});
  const Coordinates at = {{0, 1}, {{3, 4}, {3, 4}}, {{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}}};
  EXPECT_EQ(output("sdpa", {{"input.0", q}, {"input.1", k}, {"input.2", v}}, {{"causal", true}}).values(),
            rounded(sdpa(to_array(q), to_array(k), to_array(v), 1 / std::sqrt(8.0), at)));
}

TEST_F(OpRequest, AppendsToACache) {
  const auto cache = counted({1, 3, 4, 8}), x = counted({1, 3, 2, 8});
  const auto whole = output("cache_write", {{"input.0", cache}, {"input.1", x}});
  EXPECT_EQ(whole.shape(), (Shape{1, 3, 6, 8}));
  EXPECT_EQ(whole.sliced(2, 0, 4).values(), cache.values());
  EXPECT_EQ(whole.sliced(2, 4, 6).values(), x.values());
  EXPECT_EQ(output("cache_write", {{"input.0", x}}).values(), x.values());
  const auto late = output("cache_write", {{"input.0", cache}, {"input.1", x}}, {{"faults", {"F06:content=zero"}}});
  for (const double value : late.sliced(2, 4, 5).values()) EXPECT_EQ(value, 0);
  EXPECT_EQ(late.sliced(2, 5, 6).values(), x.sliced(2, 0, 1).values());
}

TEST_F(OpRequest, RefusesOperandsThatDoNotFit) {
  const auto x = counted({2, 3, 48}), heads = counted(heads_);
  EXPECT_EQ(error_of("add", {{"input.0", x}}), "plan-invalid");
  EXPECT_EQ(error_of("add", {{"input.0", x}, {"input.1", heads}}), "tensor-layout");
  EXPECT_EQ(error_of("add", {{"input.0", x}, {"input.1", counted({2, 3, 48}, DType::f16)}}), "plan-invalid");
  EXPECT_EQ(error_of("rms_norm", {{"input.0", x}}), "plan-invalid");
  EXPECT_EQ(error_of("rms_norm", {{"input.0", x}, {"weight", counted({47})}}), "tensor-layout");
  EXPECT_EQ(error_of("linear", {{"input.0", x}, {"weight", counted({4, 47})}}), "tensor-layout");
  EXPECT_EQ(error_of("linear", {{"input.0", x}, {"weight", counted({4, 48})}}, {{"heads_out", 3}}), "tensor-layout");
  EXPECT_EQ(error_of("rope", {{"input.0", x}}, {{"offset", {1}}}), "tensor-layout");
  EXPECT_EQ(error_of("rope", {{"input.0", heads}}), "plan-invalid") << "no offset";
  EXPECT_EQ(error_of("rope", {{"input.0", heads}}, {{"offset", {1, 2}}}), "plan-invalid");
  EXPECT_EQ(error_of("rope", {{"input.0", heads}}, {{"offset", {1, 2, 3}}, {"rank", 3}}), "plan-invalid");
  EXPECT_EQ(error_of("rope", {{"input.0", heads}}, {{"offset", {1}}, {"rank", 2}}), "plan-invalid");
  EXPECT_EQ(error_of("rope", {{"input.0", counted({1, 2, 1, 6})}}, {{"offset", {1}}}), "tensor-layout") << "8 channels rotate";
  EXPECT_EQ(error_of("sdpa", {{"input.0", heads}, {"input.1", counted({3, 4, 2, 8})}, {"input.2", counted({3, 4, 2, 8})}}),
            "tensor-layout");
  EXPECT_EQ(error_of("embedding", {{"weight", counted({97, 48})}}), "tokens-invalid");
  EXPECT_EQ(error_of("embedding", {{"weight", counted({97, 48})}}, {{"tokens", {{97}}}}), "tokens-invalid");
  EXPECT_EQ(error_of("cache_write", {{"input.0", counted({1, 3, 4, 8})}, {"input.1", counted({1, 2, 4, 8})}}), "tensor-layout");
}

TEST_F(OpRequest, RefusesFieldsThatItDoesNotKnow) {
  const Operands operands = {{"input.0", counted(heads_)}};
  const auto refused = [&](Json fields) {
    fields["offset"] = {1};
    return error_of("rope", operands, fields);
  };
  EXPECT_EQ(refused({}), "");
  EXPECT_EQ(refused({{"ofset", 1}}), "plan-invalid");
  EXPECT_EQ(refused({{"rank", "3"}}), "plan-invalid");
  EXPECT_EQ(refused({{"variant", "magic"}}), "not-supported");
  EXPECT_EQ(refused({{"dtype", "f12"}}), "dtype-unknown");
  EXPECT_EQ(refused({{"dtype", "i32"}}), "plan-invalid");
  EXPECT_EQ(refused({{"faults", {"F99"}}}), "fault-unknown");
  EXPECT_EQ(refused({{"facts", Json::object()}}), "json-invalid");
  EXPECT_EQ(refused({{"layouts", {{"input.4", {{"shape", {1}}, {"strides", {1}}}}}}}), "plan-invalid");
  EXPECT_EQ(refused({{"file", "/no/such/file"}}), "file-missing");
  EXPECT_EQ(refused({{"out", "/no/such/folder/out"}}), "file-write");
}

}  // namespace
}  // namespace culprit::ref
