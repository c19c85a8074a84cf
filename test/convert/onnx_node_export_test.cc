// Nodes that are imported and exported come back as themselves, with the same results: quantized
// ones, Round, and Resize by values that are fed. References are the formulas of the operator set,
// with sums in integers.
#include <coracle/convert/models.h>
#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/tensors.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/file.h>
#include <coracle/proto/onnx.pb.h>
#include <coracle/test/error_of.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace coracle::onnx_node_export_test {

using Ints = std::vector<int64_t>;
using proto::onnx::AttributeProto;

Tensor Bytes(const Shape& shape, const Ints& values, DType dtype = DType::kUInt8) {
  return Tensor::Of<int64_t>(shape, values).Cast(dtype);
}
Tensor Float(float value) { return Tensor::Of<float>({}, {value}); }
Tensor Byte(int64_t value, DType dtype = DType::kUInt8) { return Bytes({}, {value}, dtype); }

// A model of one node. The first inputs are fed, and the others are initializers.
struct Model {
  Model(const std::string& op_type, const std::vector<Tensor>& inputs, int outputs = 1,
        const std::string& domain = "", size_t fed = 1) {
    proto.set_ir_version(8);
    proto.add_opset_import()->set_version(17);
    if (!domain.empty()) {
      proto.add_opset_import()->set_domain(domain);
      proto.mutable_opset_import(1)->set_version(1);
    }
    auto& graph = *proto.mutable_graph();
    auto& node = *graph.add_node();
    node.set_op_type(op_type);
    node.set_domain(domain);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string name = "x" + std::to_string(i);
      node.add_input(name);
      if (i < fed)
        Feed(name, inputs[i]);
      else
        onnx::FillTensorProto(inputs[i], name, graph.add_initializer());
    }
    for (int i = 0; i < outputs; ++i) {
      node.add_output("y" + std::to_string(i));
      graph.add_output()->set_name("y" + std::to_string(i));
    }
  }

  void Feed(const std::string& name, const Tensor& value) {
    auto& info = *proto.mutable_graph()->add_input();
    info.set_name(name);
    auto& type = *info.mutable_type()->mutable_tensor_type();
    type.set_elem_type(onnx::ToDataType(value.dtype()));
    for (int64_t dim : value.shape()) type.mutable_shape()->add_dim()->set_dim_value(dim);
    feeds[name] = value;
  }

  void Set(const std::string& name, const Ints& values) {
    AttributeProto& attr = *proto.mutable_graph()->mutable_node(0)->add_attribute();
    attr.set_name(name);
    attr.set_type(AttributeProto::INTS);
    for (int64_t value : values) attr.add_ints(value);
  }
  void Set(const std::string& name, int64_t value) {
    AttributeProto& attr = *proto.mutable_graph()->mutable_node(0)->add_attribute();
    attr.set_name(name);
    attr.set_type(AttributeProto::INT);
    attr.set_i(value);
  }

  void Set(const std::string& name, const std::string& value) {
    AttributeProto& attr = *proto.mutable_graph()->mutable_node(0)->add_attribute();
    attr.set_name(name);
    attr.set_type(AttributeProto::STRING);
    attr.set_s(value);
  }

  proto::onnx::ModelProto proto;
  std::map<std::string, Tensor> feeds;
};

std::vector<Tensor> Run(const ProgramDesc& program, Scope& scope,
                        const std::map<std::string, Tensor>& by_name) {
  PreparedProgram net = Executor().Prepare(program);
  std::vector<Tensor> results, feeds;
  for (const std::string& name : net.feed_names()) feeds.push_back(by_name.at(name));
  for (const Tensor& result : net.Run(scope, feeds)) results.push_back(result.Clone());
  return results;
}

struct Back {
  std::vector<std::string> types;  // of the exported nodes
  std::vector<Tensor> results;     // of the model that is imported, exported and imported again

  bool Has(const std::string& type) const {
    return std::find(types.begin(), types.end(), type) != types.end();
  }
};

Back RoundTrip(const Model& model) {
  TemporaryDirectory directory;
  const std::string path = directory.File("m.onnx");
  Scope scope, again;
  const InferenceModel imported = ParseOnnx(model.proto.SerializeAsString(), "m.onnx", scope, {});
  ExportOnnx(path, imported.program, scope);
  proto::onnx::ModelProto exported;
  EXPECT_TRUE(exported.ParseFromString(ReadFile(path)));
  Back back;
  for (const auto& node : exported.graph().node()) back.types.push_back(node.op_type());
  const InferenceModel reread = ImportOnnx(path, again);
  back.results = Run(reread.program, again, model.feeds);
  const std::vector<Tensor> first = Run(imported.program, scope, model.feeds);
  EXPECT_EQ(first.size(), back.results.size());
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(BitEqual(first[i], back.results[i]));
  return back;
}

Ints Values(const Tensor& tensor) {
  const Tensor wide = tensor.Cast(DType::kInt64);
  return {wide.span<int64_t>().begin(), wide.span<int64_t>().end()};
}

// Comes back as `type`, and as nothing that the importer makes of it.
void ExpectItself(const Model& model, const std::string& type, const Ints& want) {
  const Back back = RoundTrip(model);
  EXPECT_TRUE(back.Has(type)) << type;
  for (const char* part : {"Conv", "MatMul", "Sub", "Mul", "Div", "Where", "Round", "Floor"})
    EXPECT_FALSE(back.Has(part)) << type << " has become " << part;
  EXPECT_EQ(Values(back.results.at(0)), want) << type;
}

int64_t Saturated(double value, int64_t zero_point, int64_t least) {
  const auto rounded = static_cast<int64_t>(std::nearbyint(value)) + zero_point;
  return std::clamp<int64_t>(rounded, least, least + 255);
}

// --- convolutions of a 3 x 3 image by two filters of 2 x 2 ---

constexpr int64_t kImageZero = 12;
const Ints kImage = {10, 250, 30, 7, 12, 13, 90, 81, 0};
const Ints kFilters = {1, -2, 3, 4, -128, 127, 5, 0};

// The sums at filter f, row r, column c.
int64_t SumAt(int64_t f, int64_t r, int64_t c, int64_t filter_zero) {
  int64_t sum = 0;
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 2; ++j)
      sum += (kImage[static_cast<size_t>(3 * (r + i) + c + j)] - kImageZero) *
             (kFilters[static_cast<size_t>(4 * f + 2 * i + j)] - filter_zero);
  return sum;
}

Tensor Image() { return Bytes({1, 1, 3, 3}, kImage); }
Tensor Filters() { return Bytes({2, 1, 2, 2}, kFilters, DType::kInt8); }

TEST(OnnxNodeExport, ConvInteger) {
  Ints want;
  for (int64_t f = 0; f < 2; ++f)
    for (int64_t at = 0; at < 4; ++at) want.push_back(SumAt(f, at / 2, at % 2, 3));
  ExpectItself(Model("ConvInteger", {Image(), Filters(), Byte(kImageZero), Byte(3, DType::kInt8)}),
               "ConvInteger", want);
}

TEST(OnnxNodeExport, QLinearConv) {
  for (const bool by_filter : {false, true}) {
    for (const bool with_bias : {false, true}) {
      SCOPED_TRACE(testing::Message() << "by filter " << by_filter << ", bias " << with_bias);
      const std::vector<float> scales = {0.25f, by_filter ? 0.75f : 0.25f};
      const Ints bias = {70, -1000}, zeros = {2, by_filter ? -1 : 2};
      std::vector<Tensor> inputs = {Image(), Float(0.5f), Byte(kImageZero), Filters()};
      inputs.push_back(by_filter ? Tensor::Of<float>({2}, scales) : Float(scales[0]));
      inputs.push_back(by_filter ? Bytes({2}, zeros, DType::kInt8) : Byte(2, DType::kInt8));
      inputs.push_back(Float(2.0f));
      inputs.push_back(Byte(100));
      if (with_bias) inputs.push_back(Bytes({2}, bias, DType::kInt32));
      Ints want;
      for (int64_t i = 0; i < 8; ++i) {
        const auto f = static_cast<size_t>(i / 4);
        const int64_t sum = SumAt(i / 4, i % 4 / 2, i % 2, zeros[f]) + (with_bias ? bias[f] : 0);
        want.push_back(Saturated(
            static_cast<double>(sum) * 0.5 * static_cast<double>(scales[f]) / 2.0, 100, 0));
      }
      ExpectItself(Model("QLinearConv", inputs), "QLinearConv", want);
    }
  }
}

TEST(OnnxNodeExport, QLinearConvOfOneDimension) {
  const Model model("QLinearConv", {Bytes({1, 1, 4}, {3, 9, 200, 40}), Float(1.0f), Byte(5),
                                    Bytes({1, 1, 2}, {2, -3}, DType::kInt8), Float(0.5f),
                                    Byte(0, DType::kInt8), Float(1.0f), Byte(128)});
  // (-2, 4, 195, 35) by (2, -3), halved: -8, -288.5 (to the even -288, then 0), 142.5 (to 142)
  ExpectItself(model, "QLinearConv", {120, 0, 255});
}

// --- products ---

const Ints kA = {208, 236, 0, 3, 214, 255}, kB = {152, 51, 244, 60, 26, 255};  // 2 x 3 and 3 x 2

int64_t ProductAt(int64_t r, int64_t c, int64_t a_zero, int64_t b_zero) {
  int64_t sum = 0;
  for (int64_t k = 0; k < 3; ++k)
    sum += (kA[static_cast<size_t>(3 * r + k)] - a_zero) *
           (kB[static_cast<size_t>(2 * k + c)] - b_zero);
  return sum;
}

TEST(OnnxNodeExport, MatMulInteger) {
  Ints want, by_row;
  for (int64_t i = 0; i < 4; ++i) {
    want.push_back(ProductAt(i / 2, i % 2, 12, 7));
    by_row.push_back(ProductAt(i / 2, i % 2, i < 2 ? 12 : 200, i % 2 == 0 ? 7 : 90));
  }
  const Tensor a = Bytes({2, 3}, kA), b = Bytes({3, 2}, kB);
  ExpectItself(Model("MatMulInteger", {a, b, Byte(12), Byte(7)}), "MatMulInteger", want);
  ExpectItself(Model("MatMulInteger", {a, b, Bytes({2}, {12, 200}), Bytes({2}, {7, 90})}),
               "MatMulInteger", by_row);
}

TEST(OnnxNodeExport, QLinearMatMul) {
  const float a_scale = 0.0066f, b_scale = 0.00705f, y_scale = 0.0107f;
  Ints want;
  for (int64_t i = 0; i < 4; ++i) {
    const double scale =
        static_cast<double>(a_scale) * static_cast<double>(b_scale) / static_cast<double>(y_scale);
    want.push_back(
        Saturated(static_cast<double>(ProductAt(i / 2, i % 2, 113, 114)) * scale, 118, 0));
  }
  ExpectItself(
      Model("QLinearMatMul", {Bytes({2, 3}, kA), Float(a_scale), Byte(113), Bytes({3, 2}, kB),
                              Float(b_scale), Byte(114), Float(y_scale), Byte(118)}),
      "QLinearMatMul", want);
}

// --- elements ---

TEST(OnnxNodeExport, QLinearAddAndMul) {
  const Ints b = {-128, 3, 127, 5};
  const Ints same = {0, 100, 127, 17};
  for (const std::string type : {"Add", "Mul"}) {
    Ints want;
    for (size_t i = 0; i < 4; ++i) {
      const double x = 0.5 * static_cast<double>(same[i] - 3);
      const double y = 0.25 * static_cast<double>(b[i] + 4);
      want.push_back(Saturated((type == "Add" ? x + y : x * y) / 2.0, 9, -128));
    }
    const auto int8 = DType::kInt8;
    ExpectItself(Model("QLinear" + type,
                       {Bytes({4}, same, int8), Float(0.5f), Byte(3, int8), Bytes({4}, b, int8),
                        Float(0.25f), Byte(-4, int8), Float(2.0f), Byte(9, int8)},
                       1, "com.microsoft"),
                 "QLinear" + type, want);
  }
}

// The example of ONNX's documentation.
TEST(OnnxNodeExport, DynamicQuantizeLinear) {
  const Model model("DynamicQuantizeLinear",
                    {Tensor::Of<float>({6}, {0, 2, -3, -2.5f, 1.34f, 0.5f})}, 3);
  ExpectItself(model, "DynamicQuantizeLinear", {153, 255, 0, 26, 221, 179});
  const Back back = RoundTrip(model);
  EXPECT_FLOAT_EQ(back.results.at(1).data<float>()[0], 5.0f / 255);
  EXPECT_EQ(Values(back.results.at(2)), Ints{153});
}

TEST(OnnxNodeExport, QuantizeAndDequantize) {
  const Tensor x = Tensor::Of<float>({2, 3}, {0.5f, 1.5f, -300, 2.5f, 3.5f, 1000});
  ExpectItself(Model("QuantizeLinear", {x, Float(1.0f), Byte(10)}), "QuantizeLinear",
               {10, 12, 0, 12, 14, 255});
  Model by_row("QuantizeLinear",
               {x, Tensor::Of<float>({2}, {0.5f, 2}), Bytes({2}, {1, -3}, DType::kInt8)});
  by_row.Set("axis", int64_t{0});
  ExpectItself(by_row, "QuantizeLinear", {2, 4, -128, -2, -1, 127});
  const Tensor q = Bytes({2, 3}, {0, 3, 255, 10, 11, 12});
  ExpectItself(Model("DequantizeLinear", {q, Float(2.0f), Byte(3)}), "DequantizeLinear",
               {-6, 0, 504, 14, 16, 18});
  Model by_column("DequantizeLinear",
                  {q, Tensor::Of<float>({3}, {1, 2, 3}), Bytes({3}, {1, 3, 5})});
  by_column.Set("axis", int64_t{1});
  ExpectItself(by_column, "DequantizeLinear", {-1, 0, 750, 9, 16, 21});
}

// --- Resize along one axis at a time ---

std::vector<float> Floats(const Tensor& tensor) {
  return {tensor.span<float>().begin(), tensor.span<float>().end()};
}

// Element k of n is at (k + 1/2) in / n - 1/2, and between its neighbours.
std::vector<float> Stretched(const std::vector<float>& x, size_t n, double step) {
  std::vector<float> y;
  for (size_t k = 0; k < n; ++k) {
    const double at = std::max(0.0, (static_cast<double>(k) + 0.5) * step - 0.5);
    const auto low = std::min(static_cast<size_t>(at), x.size() - 1);
    const size_t high = std::min(low + 1, x.size() - 1);
    const double part = at - static_cast<double>(low);
    y.push_back(static_cast<float>((1 - part) * static_cast<double>(x[low]) +
                                   part * static_cast<double>(x[high])));
  }
  return y;
}

void ExpectNear(const Tensor& got, const std::vector<float>& want) {
  const std::vector<float> values = Floats(got);
  ASSERT_EQ(values.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(values[i], want[i], 1e-5) << i;
}

TEST(OnnxNodeExport, ResizeBySizesThatAreFed) {
  const std::vector<float> row = {1, 2, 4, 8};
  const Tensor none(DType::kFloat32, {0});
  Model model("Resize",
              {Tensor::Of<float>({1, 4}, row), none, none, Tensor::Of<int64_t>({2}, {1, 7})});
  model.Set("mode", "linear");
  // The sizes are fed, too.
  auto& graph = *model.proto.mutable_graph();
  graph.mutable_initializer()->RemoveLast();
  model.Feed("x3", Tensor::Of<int64_t>({2}, {1, 7}));
  const Back back = RoundTrip(model);
  EXPECT_TRUE(back.Has("Resize"));
  ExpectNear(back.results.at(0), Stretched(row, 7, 4.0 / 7));
}

TEST(OnnxNodeExport, ResizeByScalesThatAreFed) {
  const std::vector<float> row = {1, 2, 4, 8};
  const Tensor none(DType::kFloat32, {0}), scales = Tensor::Of<float>({2}, {2, 1.3f});
  Model model("Resize", {Tensor::Of<float>({1, 4}, row), none, scales});
  model.Set("mode", "linear");
  model.proto.mutable_graph()->mutable_initializer()->RemoveLast();
  model.Feed("x2", scales);
  const Back back = RoundTrip(model);
  EXPECT_TRUE(back.Has("Resize"));
  // floor(4 * 1.3) = 5 elements, whose positions follow from the scale; the other axis has two
  // equal rows.
  const std::vector<float> one = Stretched(row, 5, 1 / static_cast<double>(1.3f));
  std::vector<float> both = one;
  both.insert(both.end(), one.begin(), one.end());
  ExpectNear(back.results.at(0), both);
}

TEST(OnnxNodeExport, NearestAndCrops) {
  const Tensor none(DType::kFloat32, {0}), sizes = Tensor::Of<int64_t>({2}, {1, 3});
  const Tensor x = Tensor::Of<float>({1, 4}, {1, 2, 4, 8});
  const auto run = [&](const std::string& place, const std::string& mode, const Tensor& region) {
    Model model("Resize", {x, region, none, sizes});
    model.Set("mode", mode);
    model.Set("coordinate_transformation_mode", place);
    if (mode == "nearest") model.Set("nearest_mode", "floor");
    model.proto.mutable_graph()->mutable_initializer()->RemoveLast();
    model.Feed("x3", sizes);
    return Floats(RoundTrip(model).results.at(0));
  };
  // Positions 0, 4/3 and 8/3.
  EXPECT_EQ(run("asymmetric", "nearest", none), (std::vector<float>{1, 2, 4}));
  // (k + 1/2) 4/3 = 2/3, 2 and 10/3.
  EXPECT_EQ(run("tf_half_pixel_for_nn", "nearest", none), (std::vector<float>{1, 4, 8}));
  // From 0.5 to 1.5 of three steps: positions 1.5, 3 and 4.5, the last outside.
  const Tensor region = Tensor::Of<float>({4}, {0, 0.5f, 1, 1.5f});
  EXPECT_EQ(run("tf_crop_and_resize", "linear", region), (std::vector<float>{3, 8, 0}));
}

// Halves go to even numbers.
TEST(OnnxNodeExport, Round) {
  const Model model("Round", {Tensor::Of<float>({6}, {0.5f, 1.5f, -2.5f, 2.4f, -0.5f, -3.5f})});
  const Back back = RoundTrip(model);
  EXPECT_EQ(back.types, std::vector<std::string>{"Round"});
  EXPECT_EQ(Values(back.results.at(0)), (Ints{0, 2, -2, 2, 0, -4}));
}

}  // namespace coracle::onnx_node_export_test
