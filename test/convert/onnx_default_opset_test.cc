// The operator set of a written model that the caller leaves open.

#include <coracle/convert/models.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/proto/onnx.pb.h>
#include <coracle/test/convert/ort_peer.h>
#include <coracle/test/error_of.h>
#include <coracle/test/passes/op_program.h>
#include <coracle/test/test_data.h>

namespace coracle::onnx_default_opset_test {

using proto::onnx::ModelProto;
using proto::onnx::NodeProto;
using proto::onnx::TensorProto;

class Net : public OpProgram {
 public:
  // y: x [4, 6] as integers of this type, with a scale for each block of 3 columns.
  void AppendBlocks(const std::string& x, const std::string& y, DType dtype) {
    scope.Set(Parameter("s_" + y, {4, 2}), Tensor::Full({4, 2}, 0.25f));
    const AttrList attrs = {{"axis", int32_t{1}}, {"block_size", int64_t{3}}};
    AttrList to = attrs;
    to.push_back({"out_dtype", static_cast<int32_t>(dtype)});
    Append("affine_quantize", {{"X", {x}}, {"Scale", {"s_" + y}}}, {{"Out", {"q_" + y}}}, to);
    Append("affine_dequantize", {{"X", {"q_" + y}}, {"Scale", {"s_" + y}}}, {{"Out", {y}}}, attrs);
  }
  // The written model, which computes the same after it is read.
  ModelProto Written(int opset = 0) {
    SetFeedsAndFetches(program, {"x"}, {"y"});
    TemporaryDirectory directory;
    const std::string path = directory.File("model.onnx");
    ExportOnnx(path, program, scope, {.opset = opset});
    Scope read;
    const InferenceModel again = ImportOnnx(path, read);
    EXPECT_LE(RelativeDifference(Result(program, scope), Result(again.program, read)), 1e-5);
    if (WhyNoOrt().empty() && opset <= 21) {  // ONNX Runtime 1.20 ends there
      EXPECT_EQ(CompareWithOrt(directory.File("peer"), program, scope, feeds, 1e-5, opset), "");
    }
    ModelProto model;
    EXPECT_TRUE(model.ParseFromString(ReadFile(path)));
    return model;
  }
  std::string ErrorWith(int opset) {
    SetFeedsAndFetches(program, {"x"}, {"y"});
    TemporaryDirectory directory;
    const std::string path = directory.File("model.onnx");
    const std::string error = ErrorOf([&] { ExportOnnx(path, program, scope, {.opset = opset}); });
    EXPECT_FALSE(FileExists(path));
    return error.substr(0, error.find('\n'));
  }

 private:
  Tensor Result(const ProgramDesc& of, const Scope& parameters) const {
    Scope own = parameters.Clone();
    return Executor().PrepareOwning(of, own).Run(own, {feeds.at("x")})[0];
  }
};

int64_t OpsetOf(const ModelProto& model) { return model.opset_import(0).version(); }

const NodeProto* FindNode(const ModelProto& model, const std::string& op_type) {
  for (const NodeProto& node : model.graph().node())
    if (node.op_type() == op_type) return &node;
  return nullptr;
}

TEST(OnnxDefaultOpset, StaysWithoutNeed) {
  Net net;
  net.Unary("relu", net.Data("x", {4, 6}), "y");
  const ModelProto model = net.Written();
  EXPECT_EQ(OpsetOf(model), kDefaultOnnxOpset);
  EXPECT_EQ(model.ir_version(), 8);
}

TEST(OnnxDefaultOpset, RisesToWhatAnOpNeeds) {
  Net net;
  net.AppendBlocks(net.Data("x", {4, 6}), "y", DType::kInt8);
  const ModelProto model = net.Written();
  EXPECT_EQ(OpsetOf(model), 21);
  EXPECT_EQ(model.ir_version(), 10);
  EXPECT_EQ(OpsetOf(net.Written(22)), 22);
  EXPECT_EQ(net.ErrorWith(17),
            "ONNX export: block 0 op 1 (affine_quantize of 'q_y'): a scale for each block needs "
            "opset 21 or later, got 17; leave out --opset (OnnxExportOptions::opset), or give "
            "--opset=21");
}

// Operator set 17 has no node for integers of 16 bits, and nodes of floats have no blocks.
TEST(OnnxDefaultOpset, BlocksOfOtherIntegers) {
  Net net;
  net.AppendBlocks(net.Data("x", {4, 6}), "y", DType::kInt16);
  EXPECT_EQ(OpsetOf(net.Written()), 21);
  EXPECT_NE(net.ErrorWith(17).find("needs opset 21 or later, got 17"), std::string::npos);
}

// ReduceMean has its axes as an attribute before operator set 18, and the op that needs 21 comes
// after two that need less.
TEST(OnnxDefaultOpset, AllNodesHaveTheFormOfTheLastSet) {
  Net net;
  net.Data("x", {4, 6});
  net.Unary("reduce_mean", "x", "m", {{"dim", std::vector<int32_t>{1}}, {"keep_dim", true}});
  net.Unary("cast", "m", "i",
            {{"in_dtype", static_cast<int32_t>(DType::kFloat32)},
             {"out_dtype", static_cast<int32_t>(DType::kInt32)}});
  net.Unary("bitwise_not", "i", "n");
  net.Unary("cast", "n", "f",
            {{"in_dtype", static_cast<int32_t>(DType::kInt32)},
             {"out_dtype", static_cast<int32_t>(DType::kFloat32)}});
  net.Append("elementwise_add", {{"X", {"x"}}, {"Y", {"f"}}}, {{"Out", {"sum"}}});
  net.AppendBlocks("sum", "y", DType::kInt8);
  const ModelProto model = net.Written();
  EXPECT_EQ(OpsetOf(model), 21);
  const NodeProto* mean = FindNode(model, "ReduceMean");
  ASSERT_NE(mean, nullptr);
  EXPECT_EQ(mean->input_size(), 2);
  ASSERT_NE(FindNode(model, "BitwiseNot"), nullptr);
}

TEST(OnnxDefaultOpset, RisesForAnElementType) {
  Net net;
  net.Data("x", {4, 6});
  const auto to = [](DType from, DType dtype) {
    return AttrList{{"in_dtype", static_cast<int32_t>(from)},
                    {"out_dtype", static_cast<int32_t>(dtype)}};
  };
  net.Unary("cast", "x", "h", to(DType::kFloat32, DType::kBFloat16));
  net.Unary("sin", "h", "s");
  net.Unary("cast", "s", "y", to(DType::kBFloat16, DType::kFloat32));
  SetFeedsAndFetches(net.program, {"x"}, {"y"});
  TemporaryDirectory directory;  // ONNX Runtime has no kernel for it
  ExportOnnx(directory.File("m.onnx"), net.program, net.scope);
  ModelProto model;
  ASSERT_TRUE(model.ParseFromString(ReadFile(directory.File("m.onnx"))));
  EXPECT_EQ(OpsetOf(model), 22);
  EXPECT_NE(net.ErrorWith(21).find("ONNX's Sin of bfloat16 needs opset 22 or later, got 21"),
            std::string::npos);
}

// Operator set 17 can write integers of 4 bits, but in bytes.
TEST(OnnxDefaultOpset, IntegersOfFourBits) {
  Net net;
  net.Data("x", {4, 6});
  net.Parameter("p", {6, 2}, DType::kUInt8);
  net.Append("unpack_integers", {{"X", {"p"}}}, {{"Out", {"i"}}},
             {{"bits", int32_t{4}}, {"last_dim", int64_t{4}}});
  net.Parameter("s", {1});
  net.Append("affine_dequantize", {{"X", {"i"}}, {"Scale", {"s"}}}, {{"Out", {"w"}}});
  net.Append("matmul_v2", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
  const auto type_of = [](const ModelProto& model) {
    for (const TensorProto& tensor : model.graph().initializer())
      if (tensor.dims_size() == 2) return tensor.data_type();
    return 0;
  };
  const ModelProto model = net.Written(), in_bytes = net.Written(17);
  EXPECT_EQ(OpsetOf(model), 21);
  EXPECT_EQ(type_of(model), TensorProto::UINT4);
  EXPECT_EQ(OpsetOf(in_bytes), 17);
  EXPECT_EQ(type_of(in_bytes), TensorProto::UINT8);
}

TEST(OnnxDefaultOpset, SetsThatAreNotWritten) {
  Net net;
  net.Unary("round_to_format", net.Data("x", {4, 6}), "y", {{"format", std::string("float4e2m1")}});
  const std::string none = "needs opset 23, and the latest one that is written is 22";
  EXPECT_NE(net.ErrorWith(0).find(none), std::string::npos) << net.ErrorWith(0);
  EXPECT_NE(net.ErrorWith(22).find(none), std::string::npos) << net.ErrorWith(22);
  for (const int opset : {-1, 12, 23}) {
    EXPECT_NE(net.ErrorWith(opset).find("must lie between 13 and 22, or be 0, got " +
                                        std::to_string(opset)),
              std::string::npos);
  }
}

}  // namespace coracle::onnx_default_opset_test
