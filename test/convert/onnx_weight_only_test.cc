// Weights of 4 bits and layers with such weights, written as ONNX and read again.

#include <coracle/convert/models.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/proto/onnx.pb.h>
#include <coracle/test/convert/ort_peer.h>
#include <coracle/test/passes/op_program.h>
#include <coracle/test/test_data.h>

namespace coracle::onnx_weight_only_test {

using proto::onnx::ModelProto;
using proto::onnx::TensorProto;

class Layer : public OpProgram {
 public:
  // Bytes of the whole range.
  std::string Bytes(const std::string& name, const Shape& shape, DType dtype, int most = 255) {
    Parameter(name, shape, dtype);
    Tensor value(dtype, shape);
    for (int64_t i = 0; i < value.numel(); ++i)
      static_cast<uint8_t*>(value.raw())[i] = static_cast<uint8_t>((i * 37 + 11) % (most + 1));
    scope.Set(name, value);
    return name;
  }
  // y = x w, with w of 4 bits and blocks of 3 along K.
  static Layer Dequantized(int64_t k, int64_t n, DType dtype, bool zeros) {
    Layer p;
    p.Data("x", {2, k});
    const bool rows = n % 2 == 0;
    p.Bytes("q", rows ? Shape{k, n / 2} : Shape{(k * n + 1) / 2}, dtype);
    p.Append("unpack_integers", {{"X", {"q"}}}, {{"Out", {"i"}}},
             {{"bits", int32_t{4}}, {"last_dim", rows ? n : k * n}});
    if (!rows)
      p.Append("reshape2", {{"X", {"i"}}}, {{"Out", {"m"}}},
               {{"shape", std::vector<int32_t>{static_cast<int32_t>(k), static_cast<int32_t>(n)}}});
    const Shape steps = {(k + 2) / 3, n};
    p.Parameter("s", steps);
    SlotList in = {{"X", {rows ? "i" : "m"}}, {"Scale", {"s"}}};
    if (zeros) in.push_back({"ZeroPoint", {p.Bytes("z", steps, dtype, 7)}});
    p.Append("affine_dequantize", in, {{"Out", {"w"}}},
             {{"axis", int32_t{0}}, {"block_size", int64_t{3}}});
    p.Append("matmul_v2", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
    SetFeedsAndFetches(p.program, {"x"}, {"y"});
    return p;
  }
  // The op quantized_linear.
  static Layer Linear(int64_t k, int32_t bits, DType dtype, int64_t block, bool zeros, bool bias) {
    Layer p;
    p.Data("x", {2, k});
    const Shape steps = block == 0 ? Shape{5} : Shape{5, (k + block - 1) / block};
    p.Bytes("q", {5, bits == 4 ? (k + 1) / 2 : k}, dtype);
    p.Parameter("s", steps);
    SlotList in = {{"X", {"x"}}, {"Weight", {"q"}}, {"Scale", {"s"}}};
    if (zeros) in.push_back({"ZeroPoint", {p.Bytes("z", steps, dtype, 7)}});
    if (bias) in.push_back({"Bias", {p.Parameter("b", {5})}});
    p.Append("quantized_linear", in, {{"Out", {"y"}}},
             {{"bits", bits}, {"block_size", block}, {"fuse_activation", std::string("relu")}});
    SetFeedsAndFetches(p.program, {"x"}, {"y"});
    return p;
  }
  Tensor Result(const ProgramDesc& of, const Scope& parameters) const {
    Scope own = parameters.Clone();
    return Executor().PrepareOwning(of, own).Run(own, {feeds.at("x")})[0];
  }
  // Writes a model, compares what it computes after it is read, and returns it.
  ModelProto Written(int opset = 21) const {
    TemporaryDirectory directory;
    const std::string path = directory.File("model.onnx");
    ExportOnnx(path, program, scope, {.opset = opset});
    Scope read;
    const InferenceModel again = ImportOnnx(path, read);
    EXPECT_LE(RelativeDifference(Result(program, scope), Result(again.program, read)), 1e-5);
    ModelProto model;
    EXPECT_TRUE(model.ParseFromString(ReadFile(path)));
    if (WhyNoOrt().empty()) {
      EXPECT_EQ(CompareWithOrt(directory.File("peer"), program, scope, feeds, 1e-5, opset), "");
    }
    return model;
  }
};

int TypeOf(const ModelProto& model, int64_t elements) {
  for (const TensorProto& tensor : model.graph().initializer()) {
    int64_t count = 1;
    for (const int64_t dim : tensor.dims()) count *= dim;
    if (count == elements) return tensor.data_type();
  }
  return 0;
}

TEST(OnnxWeightOnly, InitializersOfFourBits) {
  for (const DType dtype : {DType::kInt8, DType::kUInt8}) {
    for (const bool zeros : {false, true}) {
      for (const int64_t n : {5, 6}) {
        const ModelProto model = Layer::Dequantized(7, n, dtype, zeros).Written();
        const int type = dtype == DType::kInt8 ? TensorProto::INT4 : TensorProto::UINT4;
        EXPECT_EQ(TypeOf(model, 7 * n), type);
        if (zeros) {
          EXPECT_EQ(model.graph().node(0).op_type(), "DequantizeLinear");
        }
      }
    }
  }
}

TEST(OnnxWeightOnly, MatMulNBits) {
  for (const int32_t bits : {4, 8}) {
    for (const DType dtype : {DType::kInt8, DType::kUInt8}) {
      for (const bool zeros : {false, true}) {
        const Layer layer = Layer::Linear(40, bits, dtype, 16, zeros, true);
        TemporaryDirectory directory;
        const std::string path = directory.File("model.onnx");
        ExportOnnx(path, layer.program, layer.scope, {.opset = 21});
        Scope read;
        const InferenceModel again = ImportOnnx(path, read);
        EXPECT_LE(RelativeDifference(layer.Result(layer.program, layer.scope),
                                     layer.Result(again.program, read)),
                  1e-5);
        ModelProto model;
        EXPECT_TRUE(model.ParseFromString(ReadFile(path)));
        EXPECT_EQ(model.graph().node(0).op_type(), "MatMulNBits");
        // ONNX Runtime 1.20 has kernels for 4 bits only.
        if (bits == 4 && WhyNoOrt().empty()) {
          EXPECT_EQ(CompareWithOrt(directory.File("peer"), layer.program, layer.scope, layer.feeds,
                                   1e-5, 21),
                    "");
        }
      }
    }
  }
}

TEST(OnnxWeightOnly, LayersWithOtherBlocks) {
  for (const int32_t bits : {4, 8}) {
    for (const DType dtype : {DType::kInt8, DType::kUInt8}) {
      for (const bool zeros : {false, true}) {
        Layer::Linear(7, bits, dtype, 0, zeros, false).Written(17);
        Layer::Linear(7, bits, dtype, 0, zeros, true).Written(21);
        Layer::Linear(7, bits, dtype, 3, zeros, true).Written(21);
      }
    }
  }
}

}  // namespace coracle::onnx_weight_only_test
