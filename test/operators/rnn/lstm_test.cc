#include <coracle/test/op_test.h>
#include <coracle/test/operators/rnn/naive_recurrent.h>
#include <coracle/test/threads.h>

namespace coracle::lstm_test {

using naive::Draw;

const std::vector<uint64_t> kOffsets = {0, 3, 3, 8, 9, 9, 11};

naive::Lstm DrawLstm(int64_t d, int64_t p, bool peepholes, bool states) {
  naive::Lstm lstm;
  lstm.d = d;
  lstm.p = p;
  lstm.peepholes = peepholes;
  const int64_t width = p > 0 ? p : d;
  lstm.weight = Draw(width * 4 * d, 1);
  lstm.bias = Draw((peepholes ? 7 : 4) * d, 2);
  if (p > 0) lstm.projection = Draw(d * p, 3);
  if (states) lstm.h0 = Draw(6 * width, 4);
  if (states) lstm.c0 = Draw(6 * d, 5);
  return lstm;
}

// The op on kOffsets; expects what the reference computes.
OpTest Compared(naive::Lstm lstm, const std::string& type) {
  const int64_t width = lstm.p > 0 ? lstm.p : lstm.d;
  const naive::Values input = Draw(11 * 4 * lstm.d, 6);
  lstm.Run(kOffsets, input);
  OpTest test(type);
  test.Attr("use_peepholes", lstm.peepholes)
      .Attr("is_reverse", lstm.reverse)
      .Attr("gate_activation", lstm.gate)
      .Attr("cell_activation", lstm.cell)
      .Attr("candidate_activation", lstm.candidate)
      .Input("Input", {11, 4 * lstm.d}, input)
      .Lod({kOffsets})
      .Input("Weight", {width, 4 * lstm.d}, lstm.weight)
      .Input("Bias", {1, (lstm.peepholes ? 7 : 4) * lstm.d}, lstm.bias);
  if (!lstm.h0.empty()) test.Input("H0", {6, width}, lstm.h0).Input("C0", {6, lstm.d}, lstm.c0);
  if (lstm.p > 0)
    test.Input("ProjWeight", {lstm.d, lstm.p}, lstm.projection)
        .Attr("proj_activation", lstm.projection_act)
        .Attr("cell_clip", static_cast<float>(lstm.cell_clip))
        .Attr("proj_clip", static_cast<float>(lstm.projection_clip));
  test.Expect(lstm.p > 0 ? "Projection" : "Hidden", {11, width}, lstm.out)
      .Expect("Cell", {11, lstm.d}, lstm.cells)
      .ExpectLod("Cell", {kOffsets});
  return test;
}

std::vector<std::string> Slots(bool states, bool projects) {
  std::vector<std::string> slots = {"Input", "Weight", "Bias"};
  if (states) slots.insert(slots.end(), {"H0", "C0"});
  if (projects) slots.push_back("ProjWeight");
  return slots;
}

// One cell of one element by hand: the gates are sigmoid(0) = 1/2 and the candidate tanh(1).
TEST(Lstm, ByHand) {
  const double c = 0.5 * std::tanh(1.0), c2 = 0.5 * c + 0.5 * std::tanh(1.0);
  OpTest("lstm")
      .Attr("use_peepholes", false)
      .Input("Input", {2, 4}, {1, 0, 0, 0, 1, 0, 0, 0})
      .Lod({{0, 2}})
      .Input("Weight", {1, 4}, {0, 0, 0, 0})
      .Input("Bias", {1, 4}, {0, 0, 0, 0})
      .Expect("Cell", {2, 1}, {c, c2})
      .Expect("Hidden", {2, 1}, {0.5 * std::tanh(c), 0.5 * std::tanh(c2)});
}

TEST(Lstm, AgreesWithOneSequenceAfterTheOther) {
  for (const bool peepholes : {false, true}) {
    for (const bool states : {false, true}) {
      for (const bool reverse : {false, true}) {
        SCOPED_TRACE(testing::Message() << peepholes << states << reverse);
        naive::Lstm lstm = DrawLstm(3, 0, peepholes, states);
        lstm.reverse = reverse;
        Compared(lstm, "lstm").CheckGradient(Slots(states, false)).CheckFast();
      }
    }
  }
}

TEST(Lstm, Activations) {
  const std::vector<std::vector<std::string>> names = {{"tanh", "relu", "identity"},
                                                       {"identity", "sigmoid", "relu"},
                                                       {"relu", "identity", "sigmoid"}};
  for (const auto& name : names) {
    SCOPED_TRACE(name[0]);
    naive::Lstm lstm = DrawLstm(2, 0, true, true);
    lstm.gate = name[0];
    lstm.cell = name[1];
    lstm.candidate = name[2];
    Compared(lstm, "lstm").CheckGradient(Slots(true, false)).CheckFast();
    lstm = DrawLstm(2, 3, true, true);
    lstm.projection_act = name[0];
    Compared(lstm, "lstmp").CheckGradient(Slots(true, true)).CheckFast();
  }
}

TEST(Lstm, Projection) {
  for (const int variant : {0, 1, 2, 3}) {
    SCOPED_TRACE(variant);
    const bool states = variant % 2 == 1;
    naive::Lstm lstm = DrawLstm(3, 2, variant < 2, states);
    lstm.reverse = variant > 1;
    Compared(lstm, "lstmp").CheckGradient(Slots(states, true)).CheckFast();
    lstm.cell_clip = 0.3;
    lstm.projection_clip = 0.2;
    Compared(lstm, "lstmp").CheckGradient(Slots(states, true)).CheckFast();
  }
}

// The gradient of Cell alone; Hidden has none.
TEST(Lstm, GradientOfTheCell) {
  naive::Lstm lstm = DrawLstm(2, 0, true, true);
  for (const char* unused : {"Hidden", "Cell"}) {
    OpTest("lstm")
        .Input("Input", {5, 8}, Draw(40, 7))
        .Lod({{0, 2, 5}})
        .Input("Weight", {2, 8}, lstm.weight)
        .Input("Bias", {1, 14}, lstm.bias)
        .NoOutput(std::string(unused) == "Cell" ? "Cell" : "BatchHidden")
        .CheckGradient({"Input", "Weight", "Bias"});
  }
}

TEST(Lstm, ManySequences) {
  std::vector<uint64_t> offsets = {0};
  for (uint64_t i = 0; i < 40; ++i) offsets.push_back(offsets.back() + i * 7 % 11);
  const auto rows = static_cast<int64_t>(offsets.back());
  naive::Lstm lstm = DrawLstm(16, 0, false, false);
  const naive::Values input = Draw(rows * 64, 8);
  lstm.Run(offsets, input);
  OpTest("lstm")
      .Attr("use_peepholes", false)
      .Input("Input", {rows, 64}, input)
      .Lod({offsets})
      .Input("Weight", {16, 64}, lstm.weight)
      .Input("Bias", {1, 64}, lstm.bias)
      .Expect("Hidden", {rows, 16}, lstm.out)
      .CheckFast();
}

// Rows of whole vectors and of a last, partial one, with values that saturate the gates too. The
// fast kernel takes a row in one pass.
TEST(Lstm, FastRows) {
  int round = 0;
  for (const int64_t d : {8, 9, 15, 16, 17, 23, 24, 31, 32, 33, 40}) {
    for (const int variant : {0, 1, 2, 3, 4, 5, 6, 7}) {
      const bool peepholes = variant & 1, reverse = variant & 2, states = variant & 4;
      SCOPED_TRACE(testing::Message() << d << " " << peepholes << reverse << states);
      naive::Lstm lstm = DrawLstm(d, 0, peepholes, states);
      lstm.reverse = reverse;
      const Threads threads(1 + round % 3);
      OpTest test("lstm");
      test.Attr("use_peepholes", peepholes)
          .Attr("is_reverse", reverse)
          .Input("Input", {11, 4 * d}, Draw(11 * 4 * d, 9, round++ % 5 == 4 ? 30 : 2))
          .Lod({kOffsets})
          .Input("Weight", {d, 4 * d}, lstm.weight)
          .Input("Bias", {1, (peepholes ? 7 : 4) * d}, lstm.bias);
      if (states) test.Input("H0", {6, d}, lstm.h0).Input("C0", {6, d}, lstm.c0);
      test.CheckFast(1e-5);
    }
  }
}

OpTest Small(const Shape& input, const Shape& weight, const Shape& bias, const LoD& lod) {
  return std::move(OpTest("lstm")
                       .Attr("use_peepholes", false)
                       .RandomInput("Input", input)
                       .Lod(lod)
                       .RandomInput("Weight", weight)
                       .RandomInput("Bias", bias));
}

TEST(Lstm, WithoutRows) {
  Small({0, 4}, {1, 4}, {1, 4}, {{0, 0, 0}}).Expect("Hidden", {0, 1}, {}).CheckFast();
  Small({0, 4}, {1, 4}, {1, 4}, {{0}}).Expect("Cell", {0, 1}, {});
  OpTest("lstm_grad")
      .Attr("use_peepholes", false)
      .Input("Input", {0, 4}, {})
      .Lod({{0, 0}})
      .Input("Weight", {1, 4}, {1, 2, 3, 4})
      .Input("Bias", {1, 4}, {1, 2, 3, 4})
      .Input("H0", {1, 1}, {1})
      .Input("C0", {1, 1}, {1})
      .Input("Hidden", {0, 1}, {})
      .Input("BatchGate", {0, 4}, {})
      .Input("BatchCellPreAct", {0, 1}, {})
      .Expect("Weight@GRAD", {1, 4}, {0, 0, 0, 0})
      .Expect("Bias@GRAD", {1, 4}, {0, 0, 0, 0})
      .Expect("H0@GRAD", {1, 1}, {0})
      .Expect("C0@GRAD", {1, 1}, {0});
}

TEST(Lstm, Constraints) {
  const LoD lod = {{0, 2}};
  Small({2, 5}, {1, 4}, {1, 4}, lod).ExpectError("lstm.C1");
  Small({2, 4}, {1, 5}, {1, 4}, lod).ExpectError("lstm.C2");
  Small({2, 4}, {2, 4}, {1, 4}, lod).ExpectError("lstm.C2");
  Small({2, 4}, {1, 4}, {1, 7}, lod).ExpectError("lstm.C2");
  Small({2, 4}, {1, 4}, {1, 4}, lod).RandomInput("H0", {1, 1}).ExpectError("lstm.C3");
  Small({2, 4}, {1, 4}, {1, 4}, lod)
      .RandomInput("H0", {2, 1})
      .RandomInput("C0", {2, 1})
      .ExpectError("lstm.C3");
  OpTest("lstm")
      .Attr("use_peepholes", false)
      .TensorInput("Input", Tensor::Zeros(DType::kFloat32, {2, 4}))
      .Lod(lod)
      .TensorInput("Weight", Tensor::Zeros(DType::kFloat64, {1, 4}))
      .TensorInput("Bias", Tensor::Zeros(DType::kFloat64, {1, 4}))
      .ExpectError("lstm.C4");
  Small({2, 4}, {1, 4}, {1, 4}, {}).ExpectError("lstm.C5");
  OpTest("lstmp")
      .Attr("use_peepholes", false)
      .RandomInput("Input", {2, 5})
      .RandomInput("Weight", {2, 4})
      .RandomInput("ProjWeight", {1, 2})
      .RandomInput("Bias", {1, 4})
      .ExpectError("lstmp.C1");
  const auto projected = [&](const Shape& projection, const LoD& given) {
    return std::move(OpTest("lstmp")
                         .Attr("use_peepholes", false)
                         .RandomInput("Input", {2, 4})
                         .Lod(given)
                         .RandomInput("Weight", {2, 4})
                         .RandomInput("ProjWeight", projection)
                         .RandomInput("Bias", {1, 4}));
  };
  projected({2, 1}, lod).ExpectError("lstmp.C2");
  projected({1, 2}, lod).RandomInput("C0", {1, 1}).ExpectError("lstmp.C3");
  OpTest("lstmp")
      .Attr("use_peepholes", false)
      .TensorInput("Input", Tensor::Zeros(DType::kFloat64, {2, 4}))
      .TensorInput("Weight", Tensor::Zeros(DType::kFloat32, {1, 4}))
      .TensorInput("ProjWeight", Tensor::Zeros(DType::kFloat64, {1, 1}))
      .TensorInput("Bias", Tensor::Zeros(DType::kFloat32, {1, 4}))
      .ExpectError("lstmp.C4");
  projected({1, 2}, {}).ExpectError("lstmp.C5");
  OpTest("lstm_grad")
      .Attr("use_peepholes", false)
      .RandomInput("Input", {2, 4})
      .Lod(lod)
      .RandomInput("Weight", {1, 4})
      .RandomInput("Bias", {1, 4})
      .RandomInput("Hidden", {2, 1})
      .RandomInput("BatchGate", {1, 4})
      .RandomInput("BatchCellPreAct", {2, 1})
      .ExpectError("lstm_grad.C6");
  OpTest("lstmp_grad")
      .Attr("use_peepholes", false)
      .RandomInput("Input", {2, 4})
      .Lod(lod)
      .RandomInput("Weight", {2, 4})
      .RandomInput("ProjWeight", {1, 2})
      .RandomInput("Bias", {1, 4})
      .RandomInput("Projection", {2, 1})
      .RandomInput("BatchGate", {2, 4})
      .RandomInput("BatchCellPreAct", {2, 1})
      .RandomInput("BatchHidden", {2, 1})
      .ExpectError("lstmp_grad.C6");
}
}  // namespace coracle::lstm_test
