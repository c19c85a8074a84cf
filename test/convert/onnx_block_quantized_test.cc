// Weights of 2, 4 and 8 bits: MatMulNBits and GatherBlockQuantized of com.microsoft.
#include <coracle/test/convert/any_node.h>
#include <coracle/test/convert/attention_reference.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace coracle::onnx::onnx_block_quantized_test {

constexpr int64_t kRows = 3, kColumns = 40, kBlock = 16, kBlocks = 3;

// Some number below 2^bits.
int64_t Code(int64_t row, int64_t i, int64_t bits) {
  return (row * 31 + i * 7 + i * i) % (int64_t{1} << bits);
}

// Rows of `count` codes as bytes, the first code in the lowest bits.
Tensor PackedCodes(int64_t rows, int64_t count, int64_t bits, const Shape& shape) {
  const int64_t each = 8 / bits, length = (count + each - 1) / each;
  std::vector<uint8_t> bytes(static_cast<size_t>(rows * length), 0);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < count; ++i)
      bytes[static_cast<size_t>(row * length + i / each)] |=
          static_cast<uint8_t>(Code(row, i, bits) << (i % each * bits));
  return Tensor::Of<uint8_t>(shape, bytes);
}

enum class Zeros { kNone, kPacked, kFloats };

struct Product {
  int64_t bits;
  Zeros zeros;
  bool bias = false;
};

const Tensor a = Waves({2, 2, kColumns}, 0.1f), scales = Waves({kRows * kBlocks}, 0.7f);
const Tensor shift = Waves({kRows}, 0.3f), float_zeros = Waves({kRows, kBlocks}, 1.9f);

double ZeroOf(const Product& p, int64_t row, int64_t block) {
  if (p.zeros == Zeros::kNone) return static_cast<double>(int64_t{1} << (p.bits - 1));
  if (p.zeros == Zeros::kPacked) return static_cast<double>(Code(row, block, p.bits));
  return double{float_zeros.data<float>()[row * kBlocks + block]};
}

Numbers Reference(const Product& p) {
  Numbers y;
  for (int64_t m = 0; m < 4; ++m) {
    for (int64_t row = 0; row < kRows; ++row) {
      double sum = p.bias ? double{shift.data<float>()[row]} : 0;
      for (int64_t i = 0; i < kColumns; ++i) {
        const int64_t block = i / kBlock;
        const double code = static_cast<double>(Code(row * kBlocks + block, i % kBlock, p.bits));
        sum += double{a.data<float>()[m * kColumns + i]} * (code - ZeroOf(p, row, block)) *
               double{scales.data<float>()[row * kBlocks + block]};
      }
      y.push_back(static_cast<float>(sum));
    }
  }
  return y;
}

std::vector<std::optional<Tensor>> InputsOf(const Product& p) {
  const int64_t blob = kBlock * p.bits / 8;
  std::vector<std::optional<Tensor>> inputs = {
      a, PackedCodes(kRows * kBlocks, kBlock, p.bits, {kRows, kBlocks, blob}), scales};
  const int64_t length = (kBlocks * p.bits + 7) / 8;
  if (p.zeros == Zeros::kPacked)
    inputs.push_back(PackedCodes(kRows, kBlocks, p.bits, {kRows * length}));
  if (p.zeros == Zeros::kFloats) inputs.push_back(float_zeros);
  if (p.bias) {
    inputs.resize(5);
    inputs.push_back(shift);
  }
  return inputs;
}

OneNode NodeOf(const Product& p, const std::vector<std::optional<Tensor>>& inputs) {
  OneNode node("MatMulNBits", 1, inputs, "com.microsoft");
  node.Set("K", kColumns).Set("N", kRows).Set("block_size", kBlock).Set("bits", p.bits);
  return node;
}

// As near as sums of products of large numbers in float32 can be.
void ExpectClose(const Numbers& got, const Numbers& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], wanted[i], 1e-5f * (1 + std::abs(wanted[i])) * 20) << "element " << i;
}

TEST(OnnxBlockQuantized, ProductsOfEachWidth) {
  for (int64_t bits : {2, 4, 8}) {
    for (Zeros zeros : {Zeros::kNone, Zeros::kPacked, Zeros::kFloats}) {
      for (bool bias : {false, true}) {
        const Product p = {bits, zeros, bias};
        const Numbers wanted = Reference(p);
        ExpectClose(NodeOf(p, InputsOf(p)).Run(), wanted);
        OneNode open = NodeOf(p, InputsOf(p));
        ExpectClose(open.FeedInput(0, true).Run(), wanted);
        OneNode fed = NodeOf(p, InputsOf(p));  // scales that only a run knows
        ExpectClose(fed.FeedInput(0).FeedInput(2).Run(), wanted);
      }
    }
  }
}

TEST(OnnxBlockQuantized, ProductsOfFloat16) {
  const Product p = {4, Zeros::kPacked, false};
  std::vector<std::optional<Tensor>> inputs = InputsOf(p);
  for (size_t i : {size_t{0}, size_t{2}}) inputs[i] = inputs[i]->Cast(DType::kFloat16);
  const Tensor y = NodeOf(p, inputs).FeedInput(0).Result();
  EXPECT_EQ(y.dtype(), DType::kFloat16);
  const Numbers got = NumbersOf(y), wanted = Reference(p);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 0.2) << "element " << i;
}

TEST(OnnxBlockQuantized, ProductsThatAreRefused) {
  const Product p = {4, Zeros::kNone, false};
  const auto expect = [](OneNode node, const std::string& text) {
    EXPECT_NE(node.Refusal().find(text), std::string::npos) << node.Refusal();
  };
  expect(NodeOf(p, InputsOf(p)).Clear("bits").Set("bits", int64_t{3}), "2, 4 and 8 bits");
  expect(NodeOf(p, InputsOf(p)).Clear("K").Set("K", int64_t{400}), "B (input 1) must have");
  expect(NodeOf(p, InputsOf(p)).Clear("block_size").Set("block_size", int64_t{24}), "power of 2");
  expect(NodeOf(p, InputsOf(p)).FeedInput(1), "make it an initializer");
  std::vector<std::optional<Tensor>> ordered = InputsOf(p);
  ordered.resize(4);
  ordered.push_back(I({0, 1, 2}));
  expect(NodeOf(p, ordered), "g_idx");
  std::vector<std::optional<Tensor>> few = InputsOf(p);
  few[2] = F({2}, {1, 2});
  expect(NodeOf(p, few), "scales (input 2) must have 3 x 3 elements");
}

// --- GatherBlockQuantized ---

constexpr int64_t kWords = 5, kWidth = 36;
const Tensor word_scales = Waves({kWords, kBlocks}, 0.7f);

double WordValue(int64_t word, int64_t i, int64_t bits, bool zeros) {
  const double zero = zeros ? static_cast<double>(Code(word, i / kBlock, bits))
                            : static_cast<double>(int64_t{1} << (bits - 1));
  return (static_cast<double>(Code(word, i, bits)) - zero) *
         double{word_scales.data<float>()[word * kBlocks + i / kBlock]};
}

TEST(OnnxBlockQuantized, RowsOfATable) {
  const std::vector<int64_t> words = {4, 0, -2, 1};
  for (int64_t bits : {2, 4, 8}) {
    for (bool zeros : {false, true}) {
      const int64_t each = 8 / bits, length = (kBlocks + each - 1) / each;
      std::vector<std::optional<Tensor>> inputs = {
          PackedCodes(kWords, kWidth, bits, {kWords, kWidth / each}),
          Tensor::Of<int64_t>({2, 2}, words), word_scales};
      if (zeros) inputs.push_back(PackedCodes(kWords, kBlocks, bits, {kWords, length}));
      Numbers wanted;
      for (int64_t word : words)
        for (int64_t i = 0; i < kWidth; ++i)
          wanted.push_back(static_cast<float>(WordValue((word + kWords) % kWords, i, bits, zeros)));
      for (bool fed : {false, true}) {
        OneNode node("GatherBlockQuantized", 1, inputs, "com.microsoft");
        node.Set("block_size", kBlock).Set("bits", bits);
        if (fed) node.FeedInput(1, true);
        const Tensor y = node.Result();
        EXPECT_EQ(y.shape(), Shape({2, 2, kWidth}));
        ExpectClose(NumbersOf(y), wanted);
      }
    }
  }
}

TEST(OnnxBlockQuantized, TablesThatAreRefused) {
  const auto expect = [](const Tensor& scale, int64_t bits, int fed, const std::string& text) {
    OneNode node("GatherBlockQuantized", 1,
                 {PackedCodes(kWords, kWidth, bits, {kWords, kWidth * bits / 8}), I({1}), scale},
                 "com.microsoft");
    node.Set("block_size", kBlock).Set("bits", bits);
    if (fed >= 0) node.FeedInput(fed, fed == 2);
    EXPECT_NE(node.Refusal().find(text), std::string::npos) << node.Refusal();
  };
  const Tensor wide = Waves({kWords, 8}, 0.7f), low = Waves({kWords - 1, kBlocks}, 0.7f);
  const std::string mismatch = "scales (input 2) must have one element for each block of 16";
  expect(wide, 8, -1, mismatch);
  expect(wide, 4, -1, mismatch);
  expect(low, 8, -1, mismatch);
  expect(wide, 8, 2, "reshape");  // only the run knows the shape
  expect(word_scales, 4, 0, "make it an initializer");
}

// The quantized axis may be the one that is indexed.
TEST(OnnxBlockQuantized, ColumnsOfATable) {
  for (int64_t bits : {2, 4, 8}) {
    for (bool zeros : {false, true}) {
      const int64_t each = 8 / bits, length = (kBlocks + each - 1) / each;
      std::vector<std::optional<Tensor>> inputs = {
          PackedCodes(kWords, kWidth, bits, {kWords, kWidth / each}), I({35, 2, -20}), word_scales};
      if (zeros) inputs.push_back(PackedCodes(kWords, kBlocks, bits, {kWords, length}));
      Numbers wanted;
      for (int64_t word = 0; word < kWords; ++word)
        for (int64_t i : {int64_t{35}, int64_t{2}, int64_t{16}})
          wanted.push_back(static_cast<float>(WordValue(word, i, bits, zeros)));
      OneNode node("GatherBlockQuantized", 1, inputs, "com.microsoft");
      node.Set("block_size", kBlock).Set("bits", bits).Set("gather_axis", int64_t{1}).FeedInput(1);
      ExpectClose(node.Run(), wanted);
    }
  }
}

// A table of bytes stays one: no constant of the program has its numbers in floating point.
TEST(OnnxBlockQuantized, TablesStayBytes) {
  for (int64_t axis : {0, 1}) {
    ModelProto model;
    model.add_opset_import()->set_version(21);
    GraphProto& graph = *model.mutable_graph();
    Declare(graph, "ids", DType::kInt64, 1);
    const auto constant = [&](const char* name, const Tensor& value) {
      auto& tensor = *graph.add_initializer();
      tensor.set_name(name);
      tensor.set_data_type(ToDataType(value.dtype()));
      for (int64_t dim : value.shape()) tensor.add_dims(dim);
      tensor.set_raw_data(std::string(static_cast<const char*>(value.raw()), value.nbytes()));
    };
    constant("table", PackedCodes(kWords, kWidth, 8, {kWords, kWidth}));
    constant("scales", word_scales);
    NodeProto& node = AddNode(graph, "GatherBlockQuantized", {"table", "ids", "scales"}, "y");
    node.set_domain("com.microsoft");
    AddAttr(node, "block_size", AttributeProto::INT).set_i(kBlock);
    AddAttr(node, "bits", AttributeProto::INT).set_i(8);
    AddAttr(node, "gather_axis", AttributeProto::INT).set_i(axis);
    graph.add_output()->set_name("y");
    Scope scope;
    const InferenceModel imported = ParseOnnx(model.SerializeAsString(), "m.onnx", scope, {});
    PreparedProgram prepared = Executor().PrepareFrozen(imported.program, scope);
    prepared.Run(scope, {Tensor::Of<int64_t>({2}, {3, 1})});
    bool gathers = false;
    prepared.program().ForEachOp([&](const OpDesc& op) {
      if (op.type() != "gather") return;
      const VarDesc* from = prepared.program().Root().FindVar(op.Input("X")[0]);
      if (!from || from->shape() != Shape({kWords, kWidth})) return;
      EXPECT_EQ(from->dtype(), DType::kUInt8) << axis;
      gathers = true;
    });
    EXPECT_TRUE(gathers) << axis;
  }
}

}  // namespace coracle::onnx::onnx_block_quantized_test
