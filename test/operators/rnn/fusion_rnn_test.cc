#include <coracle/passes/pass.h>
#include <coracle/test/error_of.h>
#include <coracle/test/op_test.h>
#include <coracle/test/operators/rnn/naive_recurrent.h>

namespace coracle::fusion_rnn_test {

using naive::Draw;

const std::vector<uint64_t> kOffsets = {0, 2, 2, 5};

// x W for x [5, 2].
naive::Values Product(const naive::Values& x, const naive::Values& w, int64_t columns) {
  naive::Values out;
  for (int64_t row = 0; row < 5; ++row) {
    const naive::Values z = naive::Times(naive::Row(x, row, 2), w, columns);
    out.insert(out.end(), z.begin(), z.end());
  }
  return out;
}

TEST(FusionLstm, IsLstmOfAProduct) {
  for (const int variant : {0, 1, 2, 3}) {
    SCOPED_TRACE(variant);
    naive::Lstm lstm;
    lstm.d = 3;
    lstm.peepholes = variant % 2 == 1;
    lstm.reverse = variant > 1;
    lstm.weight = Draw(36, 1);
    lstm.bias = Draw(lstm.peepholes ? 21 : 12, 2);
    if (variant > 1) lstm.h0 = Draw(9, 3), lstm.c0 = Draw(9, 4);
    const naive::Values x = Draw(10, 5), w = Draw(24, 6);
    lstm.Run(kOffsets, Product(x, w, 12));
    OpTest test("fusion_lstm");
    test.Attr("use_peepholes", lstm.peepholes)
        .Attr("is_reverse", lstm.reverse)
        .Attr("use_seq", variant % 2 == 0)
        .Input("X", {5, 2}, x)
        .Lod({kOffsets})
        .Input("WeightX", {2, 12}, w)
        .Input("WeightH", {3, 12}, lstm.weight)
        .Input("Bias", {1, lstm.peepholes ? 21 : 12}, lstm.bias);
    if (variant > 1) test.Input("H0", {3, 3}, lstm.h0).Input("C0", {3, 3}, lstm.c0);
    test.Expect("Hidden", {5, 3}, lstm.out)
        .Expect("Cell", {5, 3}, lstm.cells)
        .Expect("XX", {5, 12}, Product(x, w, 12))
        .ExpectLod("Hidden", {kOffsets});
  }
}

TEST(FusedEmbeddingFcLstm, BiasIsInTheTable) {
  for (const bool peepholes : {false, true}) {
    naive::Lstm lstm;
    lstm.d = 2;
    lstm.peepholes = peepholes;
    lstm.weight = Draw(16, 1);
    const naive::Values table = Draw(32, 5);
    naive::Values bias = Draw(peepholes ? 14 : 8, 2), gates;
    for (int64_t id : {3, 0, 0, 2, 1}) {
      const naive::Values row = naive::Row(table, id, 8);
      gates.insert(gates.end(), row.begin(), row.end());
    }
    lstm.bias = bias;
    std::fill_n(lstm.bias.begin(), 8, 0);
    lstm.Run(kOffsets, gates);
    OpTest("fused_embedding_fc_lstm")
        .Attr("use_peepholes", peepholes)
        .IntInput("Ids", {5, 1}, {3, 0, 0, 2, 1})
        .Lod({kOffsets})
        .Input("Embeddings", {4, 8}, table)
        .Input("WeightH", {2, 8}, lstm.weight)
        .Input("Bias", {1, peepholes ? 14 : 8}, bias)
        .Expect("Hidden", {5, 2}, lstm.out)
        .Expect("Cell", {5, 2}, lstm.cells)
        .ExpectLod("Hidden", {kOffsets});
  }
}

TEST(FusionGru, IsGruOfAProduct) {
  for (const int variant : {0, 1, 2, 3}) {
    SCOPED_TRACE(variant);
    naive::Gru gru;
    gru.d = 3;
    gru.origin = variant % 2 == 1;
    gru.reverse = variant > 1;
    gru.weight = Draw(27, 1);
    if (variant > 1) gru.bias = Draw(9, 2);
    if (variant % 2 == 1) gru.h0 = Draw(9, 3);
    const naive::Values x = Draw(10, 5), w = Draw(18, 6);
    gru.Run(kOffsets, Product(x, w, 9));
    OpTest test("fusion_gru");
    test.Attr("origin_mode", gru.origin)
        .Attr("is_reverse", gru.reverse)
        .Input("X", {5, 2}, x)
        .Lod({kOffsets})
        .Input("WeightX", {2, 9}, w)
        .Input("WeightH", {3, 9}, gru.weight);
    if (!gru.bias.empty()) test.Input("Bias", {1, 9}, gru.bias);
    if (!gru.h0.empty()) test.Input("H0", {3, 3}, gru.h0);
    test.Expect("Hidden", {5, 3}, gru.out).ExpectLod("Hidden", {kOffsets});
  }
}

TEST(FusionRnn, Gradients) {
  OpTest("fusion_lstm")
      .RandomInput("X", {5, 2})
      .Lod({kOffsets})
      .RandomInput("WeightX", {2, 12})
      .RandomInput("WeightH", {3, 12})
      .RandomInput("Bias", {1, 21})
      .CheckGradient({"X", "WeightX", "WeightH", "Bias"});
  OpTest("fused_embedding_fc_lstm")
      .IntInput("Ids", {5, 1}, {3, 0, 0, 2, 1})
      .Lod({kOffsets})
      .RandomInput("Embeddings", {4, 8})
      .RandomInput("WeightH", {2, 8})
      .RandomInput("Bias", {1, 14})
      .CheckGradient({"Embeddings", "WeightH", "Bias"});
  OpTest("fusion_gru")
      .RandomInput("X", {5, 2})
      .Lod({kOffsets})
      .RandomInput("WeightX", {2, 9})
      .RandomInput("WeightH", {3, 9})
      .RandomInput("Bias", {1, 9})
      .CheckGradient({"X", "WeightX", "WeightH", "Bias"});
}

TEST(FusionRnn, WithoutRows) {
  OpTest("fusion_gru")
      .Input("X", {0, 2}, {})
      .Lod({{0, 0}})
      .RandomInput("WeightX", {2, 3})
      .RandomInput("WeightH", {1, 3})
      .Expect("Hidden", {0, 1}, {});
}

struct Shapes {
  Shape x = {2, 2}, weight = {2, 4}, recurrent = {1, 4}, bias = {1, 4};
  LoD lod = {{0, 2}};
  bool state = false;
  DType dtype = DType::kFloat32;
};

OpTest Small(const std::string& type, const Shapes& s) {
  const bool ids = type == "fused_embedding_fc_lstm";
  OpTest test(type);
  if (type != "fusion_gru") test.Attr("use_peepholes", false);
  test.TensorInput(ids ? "Ids" : "X", Tensor::Zeros(ids ? DType::kInt64 : DType::kFloat32, s.x))
      .Lod(s.lod)
      .TensorInput(ids ? "Embeddings" : "WeightX", Tensor::Zeros(s.dtype, s.weight))
      .TensorInput("WeightH", Tensor::Zeros(DType::kFloat32, s.recurrent))
      .TensorInput("Bias", Tensor::Zeros(DType::kFloat32, s.bias));
  if (s.state) test.TensorInput("H0", Tensor::Zeros(DType::kFloat32, {3, 1}));
  return test;
}

TEST(FusionRnn, Constraints) {
  for (const std::string type : {"fusion_lstm", "fused_embedding_fc_lstm", "fusion_gru"}) {
    SCOPED_TRACE(type);
    Shapes good;
    if (type == "fused_embedding_fc_lstm") good.x = {2, 1};
    if (type == "fusion_gru") good.weight = {2, 3}, good.recurrent = {1, 3}, good.bias = {1, 3};
    Small(type, good).Expect("Hidden", {2, 1}, {0, 0});
    Shapes bad = good;
    bad.x = {2, 1, 1};
    Small(type, bad).ExpectError(type + ".C1");
    bad = good;
    bad.weight = {2, 5};
    Small(type, bad).ExpectError(type + ".C2");
    bad = good;
    bad.bias = {1, 9};
    Small(type, bad).ExpectError(type + ".C2");
    bad = good;
    bad.state = true;
    Small(type, bad).ExpectError(type + ".C3");
    bad = good;
    bad.dtype = DType::kFloat64;
    Small(type, bad).ExpectError(type + ".C4");
    bad = good;
    bad.lod = {};
    Small(type, bad).ExpectError(type + ".C5");
  }
  OpTest("fused_embedding_fc_lstm")
      .Attr("use_peepholes", false)
      .IntInput("Ids", {1, 1}, {2})
      .Lod({{0, 1}})
      .RandomInput("Embeddings", {2, 4})
      .RandomInput("WeightH", {1, 4})
      .RandomInput("Bias", {1, 4})
      .ExpectError("Ids holds 2 at 0, outside [0, 2)");
}
TEST(FusedEmbeddingFcLstm, RefusesColumnsOver31Bits) {
  const int64_t hidden = int64_t{1} << 29;
  ProgramDesc program;
  BlockDesc& root = program.Root();
  const auto var = [&](const char* name, DType dtype, const Shape& shape, int lod_level) {
    root.Var(name).SetMeta({VarType::kLoDTensor, dtype, shape, lod_level});
  };
  var("ids", DType::kInt64, {-1, 1}, 1);
  var("table", DType::kFloat32, {2, 4 * hidden}, 0);
  var("w", DType::kFloat32, {hidden, 4 * hidden}, 0);
  var("bias", DType::kFloat32, {1, 7 * hidden}, 0);
  root.AppendOp(
      "fused_embedding_fc_lstm",
      {{"Ids", {"ids"}}, {"Embeddings", {"table"}}, {"WeightH", {"w"}}, {"Bias", {"bias"}}},
      {{"Hidden", {"hidden"}}, {"Cell", {"cell"}}}, {{"use_peepholes", true}});
  const std::string error = ErrorOf([&] { ExpandOps(program, DefaultOps()); });
  EXPECT_NE(error.find("too many columns"), std::string::npos) << error;
}

}  // namespace coracle::fusion_rnn_test
