#include <coracle/convert/models.h>
#include <coracle/convert/onnx/export/rows.h>
#include <coracle/convert/onnx/model_file.h>
#include <coracle/coracle.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/test/error_of.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

namespace coracle::onnx_export_test {

using onnx::OnnxModelFile;
using onnx::ReadOnnxModel;

// A program that is being written, with its parameters.
struct Net {
  ProgramDesc main, startup;
  Builder build{main, startup};
  Scope scope;
  TemporaryDirectory directory;

  std::string File() const { return directory.File("model.onnx"); }
  OnnxModelFile Export(const OnnxExportOptions& options = {}) {
    Executor().Run(startup, scope);
    ExportOnnx(File(), main.CloneForTest(), scope, options);
    return ReadOnnxModel(File());
  }
};

std::string OpTypes(const OnnxModelFile& file) {
  std::vector<std::string> types;
  for (const auto& node : file.model.graph().node()) types.push_back(node.op_type());
  return Join(types, " ");
}

std::string DimsOf(const proto::onnx::ValueInfoProto& info) {
  std::vector<std::string> dims;
  for (const auto& dim : info.type().tensor_type().shape().dim())
    dims.push_back(dim.has_dim_value() ? std::to_string(dim.dim_value()) : dim.dim_param());
  return Join(dims, ",");
}

TEST(OnnxExport, Mlp) {
  Net net;
  const Variable x = net.build.Data("x", {-1, 4});
  const Variable h = net.build.Fc(x, {.size = 3, .act = "relu"});
  net.build.Softmax(net.build.Fc(h, {.size = 2}), -1, {.output = "y"});
  const OnnxModelFile file = net.Export();
  const auto& graph = file.model.graph();
  EXPECT_EQ(OpTypes(file), "MatMul Add Relu MatMul Add Softmax");
  EXPECT_EQ(file.model.opset_import(0).version(), 17);
  EXPECT_EQ(file.model.ir_version(), 8);
  ASSERT_EQ(graph.input_size(), 1);
  EXPECT_EQ(graph.input(0).name(), "x");
  EXPECT_EQ(DimsOf(graph.input(0)), "x_dim_0,4");
  ASSERT_EQ(graph.output_size(), 1);
  EXPECT_EQ(graph.output(0).name(), "y");
  EXPECT_EQ(DimsOf(graph.output(0)), "y_dim_0,2");
  EXPECT_EQ(graph.node(5).output(0), "y");
  ASSERT_EQ(graph.initializer_size(), 4);
  for (int i = 0; i < 4; ++i) {
    const Tensor& value = net.scope.Get(graph.initializer(i).name());
    EXPECT_TRUE(BitEqual(value, file.initializers[static_cast<size_t>(i)]));
  }
}

TEST(OnnxExport, LargeModelsHaveExternalData) {
  Net net;
  net.build.Fc(net.build.Data("x", {-1, 64}), {.size = 32, .output = "y"});
  const OnnxModelFile file = net.Export({.max_model_bytes = 1000});
  EXPECT_TRUE(FileExists(net.File() + ".data"));
  EXPECT_LT(ReadFile(net.File()).size(), 1500u);
  ASSERT_EQ(file.initializers.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const std::string& name = file.model.graph().initializer(static_cast<int>(i)).name();
    EXPECT_TRUE(BitEqual(net.scope.Get(name), file.initializers[i])) << name;
  }
}

// ONNX's values are written once; the last one of a variable has its name.
TEST(OnnxExport, AVariableThatIsWrittenAgain) {
  Net net;
  net.build.Data("x", {2});
  BlockDesc& block = net.main.Root();
  for (const char* type : {"relu", "exp"}) {
    VarDesc& y = block.Var("y");
    y.SetShape({2});
    block.AppendOp(type, {{"X", {type == std::string("relu") ? "x" : "y"}}}, {{"Out", {"y"}}});
  }
  block.AppendOp("tanh", {{"X", {"y"}}}, {{"Out", {"z"}}});
  block.Var("z").SetShape({2});
  const OnnxModelFile file = net.Export();
  const auto& graph = file.model.graph();
  ASSERT_EQ(OpTypes(file), "Relu Exp Tanh");
  EXPECT_EQ(graph.node(0).output(0), "y_1");
  EXPECT_EQ(graph.node(1).input(0), "y_1");
  EXPECT_EQ(graph.node(1).output(0), "y");
  EXPECT_EQ(graph.node(2).input(0), "y");
}

// A feed may be fetched, also twice, and under the input's own name.
TEST(OnnxExport, OutputsThatAreInputs) {
  Net net;
  net.build.Data("x", {2});
  TemporaryDirectory directory;
  SaveInferenceModel(directory.File("m"), {"x"}, {"x"}, net.main, net.scope);
  Scope scope;
  const InferenceModel model = LoadInferenceModel(directory.File("m"), scope);
  ExportOnnx(net.File(), model.program, scope);
  const OnnxModelFile file = ReadOnnxModel(net.File());
  EXPECT_EQ(OpTypes(file), "Identity");
  EXPECT_EQ(file.model.graph().output(0).name(), "x_1");
}

TEST(OnnxExport, ALoopCarriesWhatItWrites) {
  Net net;
  const Variable x = net.build.Data("x", {2});
  BlockDesc& root = net.main.Root();
  const auto var = [](BlockDesc& block, const char* name, DType dtype, const Shape& shape) {
    VarDesc& desc = block.Var(name);
    desc.SetDType(dtype);
    desc.SetShape(shape);
  };
  var(root, "i", DType::kInt64, {1});
  var(root, "n", DType::kInt64, {1});
  var(root, "more", DType::kBool, {1});
  var(root, "sum", DType::kFloat32, {2});
  const auto fill = [&](const char* name, float value) {
    root.AppendOp("fill_constant", {}, {{"Out", {name}}},
                  {{"shape", std::vector<int64_t>{1}}, {"dtype", 3}, {"value", value}});
  };
  fill("i", 0);
  fill("n", 3);
  root.AppendOp("assign", {{"X", {"x"}}}, {{"Out", {"sum"}}});
  root.AppendOp("less_than", {{"X", {"i"}}, {"Y", {"n"}}}, {{"Out", {"more"}}});
  BlockDesc& body = net.main.AppendBlock(root);
  body.AppendOp("elementwise_add", {{"X", {"sum"}}, {"Y", {"x"}}}, {{"Out", {"sum"}}});
  body.AppendOp("increment", {{"X", {"i"}}}, {{"Out", {"i"}}}, {{"step", 1.0f}});
  body.AppendOp("less_than", {{"X", {"i"}}, {"Y", {"n"}}}, {{"Out", {"more"}}});
  root.Var("scopes").SetType(VarType::kStepScopes);
  root.AppendOp("while", {{"X", {"x", "i", "n", "sum"}}, {"Condition", {"more"}}},
                {{"Out", {"i", "more", "sum"}}, {"StepScopes", {"scopes"}}},
                {{"sub_block", BlockRef{body.idx()}}});
  var(root, "y", DType::kFloat32, {2});
  root.AppendOp("relu", {{"X", {"sum"}}}, {{"Out", {"y"}}});
  const OnnxModelFile file = net.Export();
  const auto& graph = file.model.graph();
  ASSERT_EQ(OpTypes(file), "Less Reshape Loop Relu");
  const auto& loop = graph.node(2);
  ASSERT_EQ(loop.input_size(), 5);  // no limit, the condition, i, more and sum
  EXPECT_EQ(loop.output_size(), 3);
  const auto& inner = loop.attribute(0).g();
  EXPECT_EQ(inner.input_size(), 5);
  EXPECT_EQ(inner.output_size(), 4);
  EXPECT_EQ(graph.node(3).input(0), loop.output(2));
  // No name means two values.
  std::set<std::string> names;
  for (const auto& part : {graph, inner}) {
    for (const auto& node : part.node()) {
      for (const std::string& name : node.output()) EXPECT_TRUE(names.insert(name).second) << name;
    }
  }
}

std::string ExportError(const ProgramDesc& program, const Scope& scope = Scope()) {
  TemporaryDirectory directory;
  const std::string error =
      ErrorOf([&] { ExportOnnx(directory.File("model.onnx"), program, scope); });
  EXPECT_FALSE(FileExists(directory.File("model.onnx")));
  return error;
}

TEST(OnnxExport, Refusals) {
  Net net;
  const Variable x = net.build.Data("x", {-1, 4});
  net.build.Fc(x, {.size = 3, .output = "h"});
  EXPECT_NE(ExportError(net.main).find("parameter 'fc_0.w_0' has no value"), std::string::npos)
      << ExportError(net.main);

  Net training;
  const Variable loss = training.build.Mean(
      training.build.Fc(training.build.Data("x", {-1, 4}), {.size = 3, .output = "h"}));
  Sgd({.learning_rate = 0.1}).Minimize(loss, training.startup);
  EXPECT_NE(ExportError(training.main).find("training op"), std::string::npos);

  Net dropped;
  dropped.build.Dropout(dropped.build.Data("x", {-1, 4}), {.dropout_prob = 0.5});
  EXPECT_NE(ExportError(dropped.main).find("block 0 op 0 (dropout of"), std::string::npos)
      << ExportError(dropped.main);

  ProgramDesc unknown;
  BlockDesc& block = unknown.Root();
  block.Var("x").SetShape({2, 2});
  block.Var("y").SetShape({2, 2});
  block.AppendOp("cholesky", {{"X", {"x"}}}, {{"Out", {"y"}}});
  const std::string error = ExportError(unknown);
  EXPECT_NE(error.find("block 0 op 0 (cholesky of 'y'): no ONNX counterpart is known"),
            std::string::npos)
      << error;
}

// Inputs that do not change what inference computes are left out.
TEST(OnnxExport, InputsOfTrainingOnly) {
  Net net;
  BlockDesc& block = net.main.Root();
  block.Var("x").SetShape({2, 4});
  block.Var("seed").SetDType(DType::kInt32);
  block.Var("seed").SetShape({1});
  block.AppendOp("fill_constant", {}, {{"Out", {"seed"}}},
                 {{"shape", std::vector<int64_t>{1}},
                  {"dtype", static_cast<int32_t>(DType::kInt32)},
                  {"value", 3.0f}});
  block.Var("y").SetShape({2, 4});
  block.Var("mask").SetDType(DType::kUInt8);
  block.Var("mask").SetShape({2, 4});
  block.AppendOp("dropout", {{"X", {"x"}}, {"Seed", {"seed"}}},
                 {{"Out", {"y"}}, {"Mask", {"mask"}}},
                 {{"is_test", true},
                  {"dropout_prob", 0.5f},
                  {"dropout_implementation", std::string("downgrade_in_infer")}});
  SetFeedsAndFetches(net.main, {"x"}, {"y"});
  EXPECT_EQ(OpTypes(net.Export()), "Mul");
}

TEST(OnnxExport, Opset) {
  Net net;
  const Variable x = net.build.Data("x", {-1, 4});
  net.build.LayerNorm(x, {});
  EXPECT_EQ(OpTypes(net.Export()), "LayerNormalization");
  EXPECT_EQ(OpTypes(net.Export({.opset = 15})).find("LayerNormalization"), std::string::npos);
  EXPECT_NE(ErrorOf([&] { net.Export({.opset = 7}); }).find("between 13 and 22"),
            std::string::npos);
}

// A program of one op without attrs, exported; "" where it is not refused.
std::string TypeError(const std::string& type, DType dtype, int opset, const SlotList& inputs) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  for (const char* name : {"x", "y", "out"}) {
    block.Var(name).SetDType(dtype);
    block.Var(name).SetShape({1});
  }
  block.AppendOp(type, inputs, {{"Out", {"out"}}});
  TemporaryDirectory directory;
  const auto run = [&] {
    ExportOnnx(directory.File("m.onnx"), program, Scope(), {.opset = opset});
  };
  const std::string error = ErrorOf(run);
  return error == "no error" ? "" : error.substr(0, error.find('\n'));
}

TEST(OnnxExport, ElementTypesOfOperatorSets) {
  const SlotList two = {{"X", {"x"}}, {"Y", {"y"}}}, one = {{"X", {"x"}}};
  const SlotList list = {{"X", {"x", "y"}}};
  const auto expect = [](const std::string& type, DType dtype, const SlotList& inputs, int least) {
    SCOPED_TRACE(type + " " + ToString(dtype));
    EXPECT_EQ(TypeError(type, dtype, least, inputs), "");
    if (least == 13) return;
    const std::string error = TypeError(type, dtype, 13, inputs);
    EXPECT_NE(error.find(" needs opset " + std::to_string(least) + " or later, got 13"),
              std::string::npos)
        << error;
  };
  for (const DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt16}) {
    for (const char* binary : {"add", "sub", "mul", "div", "floordiv"})
      expect(std::string("elementwise_") + binary, dtype, two, 14);
    expect("sum", dtype, list, 14);
  }
  for (const char* binary : {"add", "sub", "mul", "div", "floordiv", "max", "mod"})
    expect(std::string("elementwise_") + binary, DType::kInt32, two, 13);
  expect("elementwise_max", DType::kInt8, two, 13);
  expect("relu", DType::kInt32, one, 14);
  expect("cumsum", DType::kFloat16, one, 14);
  expect("cumsum", DType::kFloat32, one, 13);
  expect("sin", DType::kFloat16, one, 13);
  expect("sin", DType::kBFloat16, one, 22);
  expect("less_equal", DType::kBFloat16, two, 16);
  expect("trunc", DType::kInt32, one, 13);
  expect("trunc", DType::kFloat32, one, 13);
  const std::string error =
      TypeError("range", DType::kFloat16, 22, {{"Start", {"x"}}, {"End", {"y"}}, {"Step", {"x"}}});
  EXPECT_NE(error.find("ONNX's Range takes no float16"), std::string::npos) << error;
}

// CORACLE_UPDATE_DOCS=1 writes the table into the page.
TEST(OnnxExport, EveryRowIsAnOpThatThePageLists) {
  const std::string path = std::string(std::getenv("CORACLE_SOURCE_DIR")) + "/docs/onnx_export.md";
  std::map<std::string, std::string> rows;
  for (const onnx::ExportRow& row : onnx::AllRows()) {
    EXPECT_NE(DefaultOps().Find(row.op_type), nullptr) << row.op_type;
    EXPECT_TRUE(rows.emplace(row.op_type, row.maps_to).second) << row.op_type;
  }
  std::string table = "| Paddle | ONNX |\n|---|---|\n";
  for (const auto& [op_type, maps_to] : rows) table += "| `" + op_type + "` | " + maps_to + " |\n";
  std::string page = ReadFile(path);
  const size_t begin = page.find("| Paddle |");
  ASSERT_NE(begin, std::string::npos);
  size_t end = page.find("\n\n", begin);
  end = end == std::string::npos ? page.size() : end + 1;
  if (std::getenv("CORACLE_UPDATE_DOCS"))
    WriteFileAtomic(path, page.replace(begin, end - begin, table));
  else
    EXPECT_EQ(page.substr(begin, end - begin), table);
}

// The windows of an adaptive pool overlap where the sizes do not divide.
TEST(OnnxExport, AdaptivePools) {
  Net net;
  net.build.Data("x", {1, 1, 1, 7});
  BlockDesc& block = net.main.Root();
  const AttrList attrs = {
      {"pooling_type", "max"}, {"ksize", std::vector<int32_t>{1, 3}}, {"adaptive", true}};
  block.Var("y").SetShape({1, 1, 1, 3});
  block.AppendOp("pool2d", {{"X", {"x"}}}, {{"Out", {"y"}}}, attrs);
  net.Export();
  Scope scope;
  const InferenceModel again = ImportOnnx(net.File(), scope);
  const Tensor x = Tensor::Of<float>({1, 1, 1, 7}, {0, 1, 2, 3, 4, 5, 6});
  const Tensor y = Executor().PrepareOwning(again.program, scope).Run(scope, {x})[0];
  EXPECT_TRUE(BitEqual(y, Tensor::Of<float>({1, 1, 1, 3}, {2, 4, 6})));
}
}  // namespace coracle::onnx_export_test
