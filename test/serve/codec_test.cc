// Bodies of infer requests and answers: good ones in each form, and each bad one with its reason.

#include <coracle/serve/infer_codec.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace coracle::codec_test {

using serve::HttpError;
using serve::InferRequest;
using serve::Port;

const std::vector<Port> kInputs = {{"A", DType::kFloat32, {-1, 4}},
                                   {"B", DType::kFloat32, {-1, 4}}};
const std::vector<Port> kOutputs = {{"SUM", DType::kFloat32, {-1, 4}}, {"N", DType::kInt32, {-1}}};

InferRequest Parse(const std::string& body, const std::string& header = "",
                   const std::vector<Port>& inputs = kInputs) {
  serve::Request request;
  request.body = body;
  if (!header.empty()) request.headers["inference-header-content-length"] = header;
  return serve::ParseInferRequest(request, inputs, kOutputs);
}

std::string ErrorOf(const std::string& body, const std::string& header = "",
                    const std::vector<Port>& inputs = kInputs) {
  try {
    Parse(body, header, inputs);
  } catch (const HttpError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.what();
  }
  return "no error";
}

// A request whose input A is this text; B is good.
std::string With(const std::string& a) {
  return R"({"inputs":[{"name":"A",)" + a +
         R"(},{"name":"B","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]})";
}
std::string Good(const std::string& data) {
  return With(R"("shape":[1,4],"datatype":"FP32","data":)" + data);
}

std::string BytesOf(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}
std::vector<float> FloatsOf(const Tensor& tensor) {
  const auto values = tensor.span<float>();
  return {values.begin(), values.end()};
}

TEST(InferCodec, JsonFlatAndNested) {
  for (const char* data : {"[1,2.5,-3e2,4]", "[[1,2.5,-3e2,4]]", "[[[1],[2.5]],-3e2,[[4]]]"}) {
    const InferRequest request = Parse(Good(data));
    EXPECT_EQ(FloatsOf(request.inputs[0]), (std::vector<float>{1, 2.5f, -300, 4}));
    EXPECT_EQ(request.inputs[0].shape(), Shape({1, 4}));
    EXPECT_FALSE(request.has_id);
    ASSERT_EQ(request.outputs.size(), 2u);
    EXPECT_FALSE(request.outputs[1].binary);
  }
  // In any order, with unknown fields, data before its type.
  const InferRequest request =
      Parse(R"({"model_name":"x","outputs":[{"name":"N"}],"id":"42","inputs":[)"
            R"({"data":[5,6,7,8],"name":"B","parameters":{"k":1},"datatype":"FP32","shape":[1,4]},)"
            R"({"name":"A","data":[[1,2,3,4]],"shape":[1,4],"datatype":"FP32"}]})");
  EXPECT_EQ(request.id, "42");
  EXPECT_EQ(FloatsOf(request.inputs[1]), (std::vector<float>{5, 6, 7, 8}));
  ASSERT_EQ(request.outputs.size(), 1u);
  EXPECT_EQ(request.outputs[0].index, 1u);
  EXPECT_EQ(Parse(With(R"("shape":[0,4],"datatype":"FP32","data":[])")).inputs[0].numel(), 0);
}

// A float is the one that is nearest to the text, not to the double that is nearest to the text.
TEST(InferCodec, FloatsAreRoundedOnce) {
  const float next = std::nextafter(1.0f, 2.0f);
  // Halfway between 1 and `next`, a little more, a little less; 2^60 + 2^36 + 1 as an integer.
  const std::vector<float> wanted = {1, next, 1, std::nextafter(0x1p60f, INFINITY)};
  const std::string floats =
      "1.000000059604644775390625,1.00000005960464477539062500001,"
      "1.00000005960464477539062499999,";
  const std::string whole = "1152921573326323713";
  EXPECT_EQ(FloatsOf(Parse(Good("[" + floats + whole + "]")).inputs[0]), wanted);
  EXPECT_EQ(FloatsOf(Parse(Good("[" + whole + ",1,1,1.5]")).inputs[0])[0], wanted[3]);
  EXPECT_EQ(FloatsOf(Parse(Good("[" + whole + ",1,1,1]")).inputs[0])[0], wanted[3]);
  EXPECT_EQ(FloatsOf(Parse(Good("[-1.00000005960464477539062500001,1e-50,0.1,3.4e38]")).inputs[0]),
            (std::vector<float>{-next, 0, 0.1f, 3.4e38f}));
}

TEST(InferCodec, ZerosHaveSigns) {
  for (const char* data : {"[-0,0,0,-0]", "[-0,0,0,-0.0]", "[-0.0,0,0.0,-0]", "[-0,0.0,0,-0]"}) {
    const std::vector<float> zeros = FloatsOf(Parse(Good(data)).inputs[0]);
    EXPECT_EQ(zeros, std::vector<float>(4));
    EXPECT_TRUE(std::signbit(zeros[0]) && std::signbit(zeros[3])) << data;
    EXPECT_FALSE(std::signbit(zeros[1]) || std::signbit(zeros[2])) << data;
  }
  const InferRequest whole =
      Parse(R"({"inputs":[{"name":"x","shape":[2],"datatype":"UINT8","data":[-0,7]}]})", "",
            {{"x", DType::kUInt8, {-1}}});
  EXPECT_EQ(whole.inputs[0].data<uint8_t>()[0], 0);
}

TEST(InferCodec, BinaryTensors) {
  const std::string text =
      R"({"inputs":[{"name":"A","shape":[2,4],"datatype":"FP32","parameters":{"binary_data_size":32}},)"
      R"({"name":"B","shape":[2,4],"datatype":"FP32","data":[1,2,3,4,5,6,7,8]}],)"
      R"("parameters":{"binary_data_output":true}})";
  const std::vector<float> a = {1, 2, 3, 4, 5, 6, 7, std::numeric_limits<float>::infinity()};
  const InferRequest request = Parse(text + BytesOf(a), std::to_string(text.size()));
  EXPECT_EQ(FloatsOf(request.inputs[0]), a);
  EXPECT_TRUE(request.outputs[0].binary && request.outputs[1].binary);
  EXPECT_NE(ErrorOf(text + BytesOf(a) + "x", std::to_string(text.size())).find("1 bytes are left"),
            std::string::npos);
  EXPECT_NE(ErrorOf(text + "abc", std::to_string(text.size())).find("32 binary bytes, but 3"),
            std::string::npos);
  for (const char* header : {"x", "-1", "9999", "%31", "1 ", "18446744073709551617"})
    EXPECT_NE(ErrorOf(text + BytesOf(a), header).find("Inference-Header-Content-Length"),
              std::string::npos)
        << header;
  // Without JSON: the only input.
  const std::vector<Port> one = {{"x", DType::kFloat32, {-1, 4}}};
  EXPECT_EQ(Parse(BytesOf(a), "0", one).inputs[0].shape(), Shape({2, 4}));
  EXPECT_FALSE(ErrorOf(BytesOf(a), "0").empty());
  EXPECT_NE(ErrorOf(BytesOf(a) + "x", "0", one), "no error");
}

TEST(InferCodec, Texts) {
  const std::vector<Port> texts = {{"x", DType::kString, {-1}}};
  const auto request = [](const std::string& blob) {
    const std::string text =
        R"({"inputs":[{"name":"x","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":)" +
        std::to_string(blob.size()) + "}}]}";
    return std::pair(text + blob, std::to_string(text.size()));
  };
  auto [body, size] = request(std::string("\5\0\0\0hello\0\0\0\0", 13));
  EXPECT_EQ(Parse(body, size, texts).inputs[0].Strings(), (std::vector<std::string>{"hello", ""}));
  EXPECT_EQ(
      Parse(R"({"inputs":[{"name":"x","shape":[2],"datatype":"BYTES","data":["a","\u00f6"]}]})", "",
            texts)
          .inputs[0]
          .Strings(),
      (std::vector<std::string>{"a", "\xc3\xb6"}));
  for (const std::string& blob :
       {std::string("\6\0\0\0hello", 9), std::string("\5\0\0\0hello", 9), std::string("\0\0\0", 3),
        std::string("\0\0\0\0\0\0\0\0\0\0\0\0", 12), std::string("\xff\xff\xff\xff", 4)}) {
    std::tie(body, size) = request(blob);
    EXPECT_NE(ErrorOf(body, size, texts), "no error");
  }
}

TEST(InferCodec, BadJson) {
  for (const char* body : {"", "{", "[]", "7", "{} x", R"({"inputs":[NaN]})", R"({"inputs":7})",
                           R"({"inputs":[7]})", R"({"inputs":{}})", "{\"inputs\":\"\xff\"}",
                           R"({"id":3,"inputs":[]})", R"({"inputs":[],"inputs":[]})"})
    EXPECT_NE(ErrorOf(body), "no error") << body;
  EXPECT_EQ(ErrorOf("{}"), "the request needs an array of inputs");
  EXPECT_EQ(ErrorOf(R"({"inputs":[]})"), "the input 'A' is missing");
  EXPECT_NE(ErrorOf(std::string(100'000, '[')).find("levels"), std::string::npos);
  EXPECT_NE(ErrorOf(Good(std::string(10'000, '[') + std::string(10'000, ']'))).find("levels"),
            std::string::npos);
  std::string many = R"({"x":[)";
  for (int i = 0; i < 200'000; ++i) many += "1,";
  EXPECT_NE(ErrorOf(many + "1]}").find("fields"), std::string::npos);
}

TEST(InferCodec, BadInputs) {
  EXPECT_NE(
      ErrorOf(With(R"("shape":[1,4],"datatype":"FLOAT32","data":[1,2,3,4])")).find("takes FP32"),
      std::string::npos);
  EXPECT_NE(
      ErrorOf(With(R"("shape":[1,4],"datatype":"INT32","data":[1,2,3,4])")).find("takes FP32"),
      std::string::npos);
  for (const char* shape : {"[1,5]", "[4]", "[-1,4]", "[1.5,4]", "[4611686018427387904,4]", "7",
                            "[1,4,1]", "[\"1\",4]", "[281474976710656,4]"})
    EXPECT_NE(ErrorOf(With(std::string(R"("datatype":"FP32","data":[1,2,3,4],"shape":)") + shape))
                  .find("input 'A'"),
              std::string::npos)
        << shape;
  for (const char* data : {"[1,2,3]", "[1,2,3,4,5]", R"([1,2,3,"x"])", R"(["1","2","3","4"])",
                           "[1,2,3,null]", "[true,false,true,true]", "[1,2,3,1e40]",
                           "[1,2,3,1e400]", "7", "{}", "[1,2,3,{}]", "null", "[1,2,3,true]"})
    EXPECT_NE(ErrorOf(Good(data)), "no error") << data;
  const std::string twice = R"("shape":[1,4],"datatype":"FP32","data":[1,2,3,4])";
  EXPECT_NE(ErrorOf(With(twice + R"(},{"name":"A",)" + twice)).find("given twice"),
            std::string::npos);
  EXPECT_NE(ErrorOf(With(twice + R"(},{"name":"C",)" + twice)).find("no input 'C'"),
            std::string::npos);
  EXPECT_NE(ErrorOf(With(twice + R"(,"parameters":{"binary_data_size":16})")), "no error");
  EXPECT_NE(ErrorOf(With(R"("shape":[1,4],"datatype":"FP32")")).find("no data"), std::string::npos);
}

// A value outside of the type is refused, never wrapped or cut.
TEST(InferCodec, Integers) {
  const auto parse = [](DType dtype, const char* name, const std::string& value) -> std::string {
    const std::vector<Port> one = {{"x", dtype, {1}}};
    const std::string body = std::string(R"({"inputs":[{"name":"x","shape":[1],"datatype":")") +
                             name + R"(","data":[)" + value + "]}]}";
    try {
      const Tensor tensor = Parse(body, "", one).inputs[0];
      if (dtype == DType::kUInt64) return std::to_string(tensor.data<uint64_t>()[0]);
      return std::to_string(tensor.Cast(DType::kInt64).data<int64_t>()[0]);
    } catch (const HttpError&) {
      return "refused";
    }
  };
  EXPECT_EQ(parse(DType::kUInt8, "UINT8", "255"), "255");
  EXPECT_EQ(parse(DType::kUInt8, "UINT8", "300"), "refused");
  EXPECT_EQ(parse(DType::kUInt8, "UINT8", "-1"), "refused");
  EXPECT_EQ(parse(DType::kInt8, "INT8", "-128"), "-128");
  EXPECT_EQ(parse(DType::kInt8, "INT8", "128"), "refused");
  EXPECT_EQ(parse(DType::kInt32, "INT32", "1.5"), "refused");
  EXPECT_EQ(parse(DType::kInt32, "INT32", "true"), "refused");
  EXPECT_EQ(parse(DType::kInt32, "INT32", "2147483648"), "refused");
  EXPECT_EQ(parse(DType::kInt64, "INT64", "9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(parse(DType::kInt64, "INT64", "9223372036854775808"), "refused");
  EXPECT_EQ(parse(DType::kUInt64, "UINT64", "18446744073709551615"), "18446744073709551615");
  EXPECT_EQ(parse(DType::kUInt64, "UINT64", "-1"), "refused");
  EXPECT_EQ(parse(DType::kUInt64, "UINT64", "18446744073709551616"), "refused");
  EXPECT_EQ(parse(DType::kFloat16, "FP16", "1"), "refused");
  EXPECT_EQ(parse(DType::kBool, "BOOL", "1"), "refused");
  EXPECT_EQ(parse(DType::kBool, "BOOL", "true"), "1");
}

TEST(InferCodec, BadOutputs) {
  const std::string inputs = Good("[1,2,3,4]").substr(1);
  for (const char* outputs :
       {R"([{"name":"X"}])", R"([{"name":"N"},{"name":"N"}])", "7", "[7]",
        R"([{"name":"N","parameters":{"binary_data":1}}])", R"([{"name":"N","parameters":7}])"})
    EXPECT_NE(ErrorOf(std::string(R"({"outputs":)") + outputs + "," + inputs), "no error")
        << outputs;
}

// A field "data" that is no array is refused, even where no element is wanted.
TEST(InferCodec, DataIsAnArray) {
  for (const char* data : {"true", "false", "0", "null", "\"\"", "{}"}) {
    EXPECT_EQ(ErrorOf(With(std::string(R"("shape":[0,4],"datatype":"FP32","data":)") + data)),
              "data must be an array")
        << data;
  }
}

// A request without JSON for a model that takes texts.
TEST(InferCodec, RawTexts) {
  const auto raw = [](const Shape& shape) {
    return Parse("hello", "0", {{"x", DType::kString, shape}}).inputs[0];
  };
  EXPECT_EQ(raw({-1}).Strings(), std::vector<std::string>{"hello"});
  EXPECT_EQ(raw({-1, 1}).shape(), Shape({1, 1}));
  EXPECT_EQ(raw({}).shape(), Shape());
  EXPECT_NE(ErrorOf("hello", "0", {{"x", DType::kString, {2}}}).find("is one text"),
            std::string::npos);
  EXPECT_NE(ErrorOf("hello", "0", {{"x", DType::kString, {-1, -1}}}), "no error");
}

// Four bytes of a body could become a text of 16 bytes or more each: only those that are declared.
TEST(InferCodec, TextsStopAtTheirNumber) {
  const std::vector<Port> texts = {{"x", DType::kString, {-1}}};
  const std::string blob(4000, '\0');
  const std::string text =
      R"({"inputs":[{"name":"x","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":4000}}]})";
  EXPECT_NE(ErrorOf(text + blob, std::to_string(text.size()), texts)
                .find("has 2 elements, got 2 and 3992 bytes more"),
            std::string::npos);
}

TEST(InferCodec, IntegersThatBecomeFloats) {
  const InferRequest request = Parse(Good("[1,18446744073709551615,-3,0.5]"));
  EXPECT_EQ(FloatsOf(request.inputs[0]), (std::vector<float>{1, 18446744073709551616.f, -3, 0.5f}));
  EXPECT_EQ(FloatsOf(Parse(Good("[0.5,18446744073709551615,-3,2]")).inputs[0]),
            (std::vector<float>{0.5f, 18446744073709551616.f, -3, 2}));
}

TEST(InferCodec, ZeroRows) {
  const InferRequest request = Parse(
      R"({"inputs":[{"name":"A","shape":[0,4],"datatype":"FP32","data":[]},)"
      R"({"name":"B","shape":[0,4],"datatype":"FP32","parameters":{"binary_data_size":0}}]})");
  EXPECT_EQ(request.inputs[1].shape(), Shape({0, 4}));
  InferRequest wanted;
  wanted.outputs = {{0, false}, {1, true}};
  const serve::Response answer = serve::InferResponse(
      wanted, "m", "1", kOutputs, {Tensor(DType::kFloat32, {0, 4}), Tensor(DType::kInt32, {0})});
  EXPECT_NE(answer.body.find(R"("shape":[0,4],"data":[]})"), std::string::npos);
  EXPECT_NE(answer.body.find(R"("shape":[0],"parameters":{"binary_data_size":0}})"),
            std::string::npos);
  EXPECT_EQ(answer.headers.at("Inference-Header-Content-Length"),
            std::to_string(answer.body.size()));
}

// The sequences of a LoD tensor are a parameter of the output.
TEST(InferCodec, AnswersWithSequences) {
  Tensor sum = Tensor::Zeros(DType::kFloat32, {3, 4});
  sum.lod() = {{0, 2, 3}};
  InferRequest request;
  for (bool binary : {false, true}) {
    request.outputs = {{0, binary}};
    const serve::Response answer = serve::InferResponse(request, "m", "1", kOutputs, {sum});
    EXPECT_NE(answer.body.find(R"("lod":[[0,2,3]]})"), std::string::npos) << answer.body;
  }
}

TEST(InferCodec, Answers) {
  const std::vector<Tensor> results = {Tensor::Of<float>({1, 4}, {0.1f, 1e30f, -0.0f, 3}),
                                       Tensor::Of<int32_t>({1}, {-7})};
  InferRequest request;
  request.outputs = {{0, false}, {1, false}};
  serve::Response answer = serve::InferResponse(request, "m", "1", kOutputs, results);
  EXPECT_EQ(answer.body,
            R"({"model_name":"m","model_version":"1","outputs":[{"name":"SUM","datatype":"FP32",)"
            R"("shape":[1,4],"data":[0.1,1e+30,-0,3]},{"name":"N","datatype":"INT32","shape":[1],)"
            R"("data":[-7]}]})");
  EXPECT_EQ(answer.type, "application/json");
  request.has_id = true;
  request.id = "a\"b";
  request.outputs = {{1, true}, {0, false}};
  answer = serve::InferResponse(request, "m", "1", kOutputs, results);
  const size_t size = std::stoul(answer.headers.at("Inference-Header-Content-Length"));
  ASSERT_EQ(answer.body.size(), size + 4);
  int32_t value = 0;
  std::memcpy(&value, answer.body.data() + size, 4);
  EXPECT_EQ(value, -7);
  EXPECT_NE(answer.body.find(R"("id":"a\"b")"), std::string::npos);
  EXPECT_NE(answer.body.find(R"("shape":[1],"parameters":{"binary_data_size":4}})"),
            std::string::npos);
  // What JSON has no word for.
  request.outputs = {{0, false}};
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()})
    EXPECT_THROW(serve::InferResponse(request, "m", "1", kOutputs,
                                      {Tensor::Full<float>({1, 4}, bad), results[1]}),
                 HttpError);
  EXPECT_THROW(serve::InferResponse(request, "m", "1", kOutputs,
                                    {Tensor::Zeros(DType::kFloat16, {1, 4}), results[1]}),
               HttpError);
}

}  // namespace coracle::codec_test
