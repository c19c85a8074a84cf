#include <coracle/test/op_test.h>
#include <coracle/test/operators/rnn/naive_recurrent.h>

namespace coracle::gru_test {

using naive::Draw;

const std::vector<uint64_t> kOffsets = {0, 3, 3, 8, 9, 9, 11};

naive::Gru DrawGru(int64_t d, int64_t sequences, bool states, bool bias) {
  naive::Gru gru;
  gru.d = d;
  gru.weight = Draw(3 * d * d, 1);
  if (bias) gru.bias = Draw(3 * d, 2);
  if (states) gru.h0 = Draw(sequences * d, 3);
  return gru;
}

OpTest Compared(naive::Gru gru) {
  const naive::Values input = Draw(11 * 3 * gru.d, 6);
  gru.Run(kOffsets, input);
  OpTest test("gru");
  test.Attr("is_reverse", gru.reverse)
      .Attr("origin_mode", gru.origin)
      .Attr("gate_activation", gru.gate)
      .Attr("activation", gru.candidate)
      .Input("Input", {11, 3 * gru.d}, input)
      .Lod({kOffsets})
      .Input("Weight", {gru.d, 3 * gru.d}, gru.weight);
  if (!gru.bias.empty()) test.Input("Bias", {1, 3 * gru.d}, gru.bias);
  if (!gru.h0.empty()) test.Input("H0", {6, gru.d}, gru.h0);
  test.Expect("Hidden", {11, gru.d}, gru.out).ExpectLod("Hidden", {kOffsets});
  return test;
}

std::vector<std::string> Slots(const naive::Gru& gru, const char* state) {
  std::vector<std::string> slots = {"Input", "Weight"};
  if (!gru.bias.empty()) slots.push_back("Bias");
  if (!gru.h0.empty()) slots.push_back(state);
  return slots;
}

// u = r = sigmoid(0) = 1/2, n = tanh(1 + r h 2): h' = (h + n) / 2.
TEST(Gru, ByHand) {
  const double h = 0.5 * std::tanh(1.0);
  OpTest("gru")
      .Input("Input", {2, 3}, {0, 0, 1, 0, 0, 1})
      .Lod({{0, 2}})
      .Input("Weight", {1, 3}, {0, 0, 2})
      .Expect("Hidden", {2, 1}, {h, 0.5 * h + 0.5 * std::tanh(1 + h)});
}

// Two sequences of one and two rows: the longer one comes first in each step. With U = 0, u = r =
// sigmoid(0) = 1/2 and n = tanh(x).
TEST(Gru, IntermediatesAreInTheOrderOfTime) {
  const double a = std::tanh(1.0), b = std::tanh(2.0), c = std::tanh(3.0);
  const double h_b = 0.5 * b, h_c = 0.5 * h_b + 0.5 * c;
  OpTest("gru")
      .Input("Input", {3, 3}, {0, 0, 1, 0, 0, 2, 0, 0, 3})
      .Lod({{0, 1, 3}})
      .Input("Weight", {1, 3}, {0, 0, 0})
      .Expect("Hidden", {3, 1}, {0.5 * a, h_b, h_c})
      .Expect("BatchGate", {3, 3}, {0.5, 0.5, b, 0.5, 0.5, a, 0.5, 0.5, c})
      .Expect("BatchResetHiddenPrev", {3, 1}, {0, 0, 0.5 * h_b})
      .Expect("BatchHidden", {3, 1}, {h_b, 0.5 * a, h_c});
}

TEST(Gru, AgreesWithOneSequenceAfterTheOther) {
  for (const bool origin : {false, true}) {
    for (const bool states : {false, true}) {
      for (const bool reverse : {false, true}) {
        SCOPED_TRACE(testing::Message() << origin << states << reverse);
        naive::Gru gru = DrawGru(3, 6, states, states != reverse);
        gru.origin = origin;
        gru.reverse = reverse;
        Compared(gru).CheckGradient(Slots(gru, "H0")).CheckFast();
      }
    }
  }
}

TEST(Gru, Activations) {
  const std::vector<std::vector<std::string>> names = {
      {"tanh", "relu"}, {"identity", "sigmoid"}, {"relu", "identity"}};
  for (const auto& name : names) {
    SCOPED_TRACE(name[0]);
    naive::Gru gru = DrawGru(2, 6, true, true);
    gru.gate = name[0];
    gru.candidate = name[1];
    Compared(gru).CheckGradient(Slots(gru, "H0")).CheckFast();
  }
}

// A sequence of one row is a step of gru_unit.
TEST(GruUnit, AgreesWithGru) {
  const std::vector<std::string> names = {"identity", "sigmoid", "tanh", "relu"};
  for (const int variant : {0, 1, 2, 3}) {
    SCOPED_TRACE(variant);
    naive::Gru gru = DrawGru(3, 4, true, variant % 2 == 0);
    gru.origin = variant > 1;
    gru.gate = names[static_cast<size_t>(variant)];
    gru.candidate = names[static_cast<size_t>(3 - variant)];
    const naive::Values input = Draw(4 * 9, 9);
    gru.Run({0, 1, 2, 3, 4}, input);
    OpTest test("gru_unit");
    test.Attr("gate_activation", variant)
        .Attr("activation", 3 - variant)
        .Attr("origin_mode", gru.origin)
        .Input("Input", {4, 9}, input)
        .Input("HiddenPrev", {4, 3}, gru.h0)
        .Input("Weight", {3, 9}, gru.weight);
    if (!gru.bias.empty()) test.Input("Bias", {1, 9}, gru.bias);
    test.Expect("Hidden", {4, 3}, gru.out).CheckGradient(Slots(gru, "HiddenPrev")).CheckFast();
  }
}

TEST(GruUnit, Gates) {
  OpTest("gru_unit")
      .Attr("gate_activation", 0)
      .Attr("activation", 0)
      .Input("Input", {2, 6}, {1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, -6})
      .Input("HiddenPrev", {2, 2}, {1, 0, 0, 2})
      .Input("Weight", {2, 6}, std::vector<double>(12, 0))
      .Expect("Gate", {2, 6}, {1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, -6})
      .Expect("ResetHiddenPrev", {2, 2}, {3, 0, 0, -8})
      .Expect("Hidden", {2, 2}, {5, 12, 5, 18});
  OpTest("gru_unit")
      .Input("Input", {0, 6}, {})
      .Input("HiddenPrev", {0, 2}, {})
      .Input("Weight", {2, 6}, std::vector<double>(12, 0))
      .Expect("Hidden", {0, 2}, {});
}

OpTest Small(const Shape& input, const Shape& weight, const LoD& lod) {
  return std::move(
      OpTest("gru").RandomInput("Input", input).Lod(lod).RandomInput("Weight", weight));
}

TEST(Gru, WithoutRows) {
  Small({0, 3}, {1, 3}, {{0, 0, 0}}).Expect("Hidden", {0, 1}, {}).CheckFast();
  Small({0, 3}, {1, 3}, {{0}}).Expect("Hidden", {0, 1}, {});
  OpTest("gru_grad")
      .Input("Input", {0, 3}, {})
      .Lod({{0, 0}})
      .Input("Weight", {1, 3}, {1, 2, 3})
      .Input("Bias", {1, 3}, {1, 2, 3})
      .Input("H0", {1, 1}, {1})
      .Input("Hidden", {0, 1}, {})
      .Input("BatchGate", {0, 3}, {})
      .Input("BatchResetHiddenPrev", {0, 1}, {})
      .Expect("Weight@GRAD", {1, 3}, {0, 0, 0})
      .Expect("Bias@GRAD", {1, 3}, {0, 0, 0})
      .Expect("H0@GRAD", {1, 1}, {0});
}

TEST(Gru, Constraints) {
  const LoD lod = {{0, 2}};
  Small({2, 4}, {1, 3}, lod).ExpectError("gru.C1");
  Small({2, 3}, {2, 3}, lod).ExpectError("gru.C2");
  Small({2, 3}, {1, 3}, lod).RandomInput("Bias", {3}).ExpectError("gru.C2");
  Small({2, 3}, {1, 3}, lod).RandomInput("H0", {2, 1}).ExpectError("gru.C3");
  OpTest("gru")
      .TensorInput("Input", Tensor::Zeros(DType::kFloat64, {2, 3}))
      .Lod(lod)
      .TensorInput("Weight", Tensor::Zeros(DType::kFloat32, {1, 3}))
      .ExpectError("gru.C4");
  Small({2, 3}, {1, 3}, {}).ExpectError("gru.C5");
  OpTest("gru_grad")
      .RandomInput("Input", {2, 3})
      .Lod(lod)
      .RandomInput("Weight", {1, 3})
      .RandomInput("BatchGate", {2, 3})
      .RandomInput("BatchResetHiddenPrev", {2, 1})
      .RandomInput("Hidden", {1, 1})
      .ExpectError("gru_grad.C6");
}

TEST(GruUnit, Constraints) {
  const auto unit = [](const Shape& input, const Shape& weight, const Shape& state) {
    return std::move(OpTest("gru_unit")
                         .RandomInput("Input", input)
                         .RandomInput("Weight", weight)
                         .RandomInput("HiddenPrev", state));
  };
  unit({2, 4}, {1, 3}, {2, 1}).ExpectError("gru_unit.C1");
  unit({2, 3}, {1, 4}, {2, 1}).ExpectError("gru_unit.C2");
  unit({2, 3}, {1, 3}, {1, 1}).ExpectError("gru_unit.C3");
  OpTest("gru_unit")
      .TensorInput("Input", Tensor::Zeros(DType::kFloat32, {2, 3}))
      .TensorInput("Weight", Tensor::Zeros(DType::kFloat32, {1, 3}))
      .TensorInput("HiddenPrev", Tensor::Zeros(DType::kFloat64, {2, 1}))
      .ExpectError("gru_unit.C4");
  OpTest("gru_unit_grad")
      .RandomInput("Input", {2, 3})
      .RandomInput("Weight", {1, 3})
      .RandomInput("HiddenPrev", {2, 1})
      .RandomInput("Gate", {2, 3})
      .RandomInput("ResetHiddenPrev", {2, 2})
      .RandomInput("Hidden@GRAD", {2, 1})
      .ExpectError("gru_unit_grad.C6");
}
}  // namespace coracle::gru_test
