#include <coracle/framework/tensor/rng.h>
#include <coracle/test/op_test.h>
#include <coracle/test/operators/rnn/naive_recurrent.h>

#include <algorithm>
#include <cmath>

namespace coracle::rnn_test {

using Row = std::vector<double>;

struct Case {
  std::string mode = "LSTM";
  int64_t steps = 3, batch = 2, input = 2, hidden = 2;
  int layers = 1;
  bool both = false;
  std::vector<int64_t> lengths = {};
  float dropout = 0;
  bool is_test = false;

  int directions() const { return both ? 2 : 1; }
  int gates() const { return mode == "LSTM" ? 4 : mode == "GRU" ? 3 : 1; }
  int states() const { return mode == "LSTM" ? 2 : 1; }
  int64_t cells() const { return int64_t{layers} * directions(); }
  std::string Name() const {
    return mode + " layers " + std::to_string(layers) + " directions " +
           std::to_string(directions()) + " lengths " + std::to_string(lengths.size()) + " [" +
           std::to_string(steps) + ", " + std::to_string(batch) + ", " + std::to_string(input) +
           "] hidden " + std::to_string(hidden);
  }
};

OpTest MakeOp(const Case& c) {
  OpTest op("rnn");
  op.Attr("mode", c.mode)
      .Attr("hidden_size", static_cast<int32_t>(c.hidden))
      .Attr("num_layers", int32_t{c.layers})
      .Attr("is_bidirec", c.both)
      .Attr("dropout_prob", c.dropout)
      .Attr("is_test", c.is_test);
  op.RandomInput("Input", {c.steps, c.batch, c.input});
  for (int s = 0; s < c.states(); ++s) op.RandomInput("PreState", {c.cells(), c.batch, c.hidden});
  // Larger ones make long sequences chaotic: no two roundings would agree.
  const double high = std::min(1.0, 1.5 / std::sqrt(static_cast<double>(c.hidden)));
  for (int layer = 0; layer < c.layers; ++layer) {
    for (int d = 0; d < c.directions(); ++d) {
      const int64_t inputs = layer == 0 ? c.input : c.directions() * c.hidden;
      op.RandomInput("WeightList", {c.gates() * c.hidden, inputs}, -high, high);
      op.RandomInput("WeightList", {c.gates() * c.hidden, c.hidden}, -high, high);
    }
  }
  for (int64_t b = 0; b < 2 * c.cells(); ++b)
    op.RandomInput("WeightList", {c.gates() * c.hidden}, -0.5, 0.5);
  if (!c.lengths.empty()) op.IntInput("SequenceLength", {c.batch}, c.lengths, DType::kInt32);
  op.Outputs("State", c.states());
  return op;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One sample, one layer, one direction, by the definition: a plain list of steps.
class OneCell {
 public:
  OneCell(const Case& c, Row w, Row u, Row b, Row b2)
      : c_(c), w_(std::move(w)), u_(std::move(u)), b_(std::move(b)), b2_(std::move(b2)) {}

  Row h, cell;

  void Step(const Row& x) {
    Row a(b_), r(b2_);
    for (size_t g = 0; g < b_.size(); ++g) {
      for (size_t k = 0; k < x.size(); ++k) a[g] += w_[g * x.size() + k] * x[k];
      for (size_t k = 0; k < h.size(); ++k) r[g] += u_[g * h.size() + k] * h[k];
    }
    const size_t n = h.size();
    for (size_t k = 0; k < n; ++k) {
      auto sum = [&](size_t gate) { return a[gate * n + k] + r[gate * n + k]; };
      if (c_.mode == "LSTM") {
        cell[k] = Sigmoid(sum(1)) * cell[k] + Sigmoid(sum(0)) * std::tanh(sum(2));
        h[k] = Sigmoid(sum(3)) * std::tanh(cell[k]);
      } else if (c_.mode == "GRU") {
        const double z = Sigmoid(sum(1));
        const double candidate = std::tanh(a[2 * n + k] + Sigmoid(sum(0)) * r[2 * n + k]);
        h[k] = (h[k] - candidate) * z + candidate;
      } else {
        h[k] = c_.mode == "RNN_RELU" ? std::max(sum(0), 0.0) : std::tanh(sum(0));
      }
    }
  }

 private:
  const Case& c_;
  Row w_, u_, b_, b2_;
};

Row Values(const VarValues& env, const std::string& name) {
  Tensor wide = std::get<Tensor>(env.at(name)).Cast(DType::kFloat64);
  return {wide.data<double>(), wide.data<double>() + wide.numel()};
}

Row Part(const Row& all, int64_t begin, int64_t count) {
  return {all.begin() + begin, all.begin() + begin + count};
}

struct Expected {
  Row out, h, c;
};

// The expected result for the inputs in `env`, without dropout.
Expected Definition(const Case& c, const VarValues& env) {
  const int64_t width = c.directions() * c.hidden;
  Expected e;
  e.h = Values(env, "PreState.0");
  if (c.states() == 2) e.c = Values(env, "PreState.1");
  Row x = Values(env, "Input.0");
  int64_t inputs = c.input;
  for (int layer = 0; layer < c.layers; ++layer) {
    Row out(static_cast<size_t>(c.steps * c.batch * width), 0.0);
    for (int d = 0; d < c.directions(); ++d) {
      const int64_t cell = layer * c.directions() + d;
      auto weight = [&](int64_t i) { return Values(env, "WeightList." + std::to_string(i)); };
      for (int64_t n = 0; n < c.batch; ++n) {
        OneCell one(c, weight(2 * cell), weight(2 * cell + 1), weight(2 * (c.cells() + cell)),
                    weight(2 * (c.cells() + cell) + 1));
        const int64_t at = (cell * c.batch + n) * c.hidden;
        one.h = Part(e.h, at, c.hidden);
        if (c.states() == 2) one.cell = Part(e.c, at, c.hidden);
        const int64_t length = c.lengths.empty() ? c.steps : c.lengths[static_cast<size_t>(n)];
        for (int64_t s = 0; s < length; ++s) {
          const int64_t t = d == 0 ? s : length - 1 - s, row = t * c.batch + n;
          one.Step(Part(x, row * inputs, inputs));
          std::copy(one.h.begin(), one.h.end(), out.begin() + row * width + d * c.hidden);
        }
        std::copy(one.h.begin(), one.h.end(), e.h.begin() + at);
        std::copy(one.cell.begin(), one.cell.end(), e.c.begin() + (c.states() == 2 ? at : 0));
      }
    }
    x = out;
    inputs = width;
  }
  e.out = x;
  return e;
}

void ExpectDefinition(const Case& c) {
  SCOPED_TRACE(c.Name());
  OpTest op = MakeOp(c);
  const Expected e = Definition(c, op.Run(KernelMode::kReference, true));
  op.Expect("Out", {c.steps, c.batch, c.directions() * c.hidden}, e.out, 2e-6);
  const Shape state = {c.cells(), c.batch, c.hidden};
  op.Expect("State", state, e.h, 2e-6, 0);
  if (c.states() == 2) op.Expect("State", state, e.c, 2e-6, 1);
  // And in double to its own precision.
  const Row out = Values(op.Run(KernelMode::kReference, true), "Out.0");
  for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], e.out[i], 1e-13) << i;
}

const char* const kModes[] = {"LSTM", "GRU", "RNN_TANH", "RNN_RELU"};
const std::vector<std::string> kInputs = {"Input", "PreState", "WeightList"};

// One unit, one step, by hand: a = 0.5 x + 0.25 h + b + b' with x = 1, h = 0.5 and c = 2.
TEST(Rnn, ByHand) {
  const double h = 0.5, a = 0.5 * 1 + 0.25 * h + 0.1 + 0.2;
  auto op = [&](const std::string& mode, int gates) {
    OpTest test("rnn");
    const auto n = static_cast<size_t>(gates);
    test.Attr("mode", mode).Attr("hidden_size", int32_t{1});
    test.Input("Input", {1, 1, 1}, {1}).Input("PreState", {1, 1, 1}, {h});
    if (mode == "LSTM") test.Input("PreState", {1, 1, 1}, {2});
    test.Input("WeightList", {gates, 1}, Row(n, 0.5)).Input("WeightList", {gates, 1}, Row(n, 0.25));
    test.Input("WeightList", {gates}, Row(n, 0.1)).Input("WeightList", {gates}, Row(n, 0.2));
    test.Outputs("State", mode == "LSTM" ? 2 : 1);
    return test;
  };
  op("RNN_TANH", 1).Expect("Out", {1, 1, 1}, {std::tanh(a)});
  op("RNN_RELU", 1).Expect("Out", {1, 1, 1}, {a}).Expect("State", {1, 1, 1}, {a});
  const double s = Sigmoid(a), c = s * 2 + s * std::tanh(a);
  op("LSTM", 4)
      .Expect("State", {1, 1, 1}, {c}, 1e-5, 1)
      .Expect("State", {1, 1, 1}, {s * std::tanh(c)})
      .Expect("Out", {1, 1, 1}, {s * std::tanh(c)});
  const double candidate = std::tanh(0.5 + 0.1 + s * (0.25 * h + 0.2));
  op("GRU", 3).Expect("Out", {1, 1, 1}, {s * h + (1 - s) * candidate});
}

TEST(Rnn, ByDefinition) {
  for (const char* mode : kModes) {
    for (int layers : {1, 2, 3}) {
      for (bool both : {false, true}) {
        for (const std::vector<int64_t>& lengths :
             {std::vector<int64_t>{}, std::vector<int64_t>{4, 2, 0}, {1, 4, 3}}) {
          ExpectDefinition({.mode = mode,
                            .steps = 4,
                            .batch = 3,
                            .input = 2,
                            .hidden = 3,
                            .layers = layers,
                            .both = both,
                            .lengths = lengths});
        }
      }
    }
  }
}

TEST(Rnn, Empty) {
  for (const char* mode : kModes) {
    for (bool both : {false, true}) {
      ExpectDefinition({.mode = mode, .steps = 0, .batch = 2, .both = both});
      ExpectDefinition({.mode = mode, .steps = 2, .batch = 0, .layers = 2, .both = both});
      ExpectDefinition({.mode = mode, .steps = 2, .input = 0, .both = both});
    }
  }
}

// Saturated gates stay finite, in every kernel.
TEST(Rnn, ExtremeInputs) {
  for (const char* mode : {"LSTM", "GRU", "RNN_TANH"}) {
    Case c{.mode = mode, .steps = 2, .hidden = 5};
    OpTest op = MakeOp(c);
    VarValues env = op.Run(KernelMode::kReference, true);
    for (double scale : {1e4, 1e30}) {
      OpTest big("rnn");
      big.Attr("mode", c.mode).Attr("hidden_size", int32_t{5}).Outputs("State", c.states());
      Row x = Values(env, "Input.0");
      for (double& v : x) v *= scale;
      big.Input("Input", {2, 2, 2}, x);
      for (int s = 0; s < c.states(); ++s)
        big.Input("PreState", {1, 2, 5}, Values(env, "PreState." + std::to_string(s)));
      for (int i = 0; i < 4; ++i) {
        const std::string name = "WeightList." + std::to_string(i);
        big.Input("WeightList", std::get<Tensor>(env.at(name)).shape(), Values(env, name));
      }
      for (KernelMode kernels : {KernelMode::kReference, KernelMode::kAuto}) {
        for (double v : Values(big.Run(kernels, false), "Out.0"))
          EXPECT_TRUE(std::isfinite(v)) << mode << " " << scale;
      }
    }
  }
}

TEST(Rnn, Gradients) {
  for (const char* mode : kModes) {
    for (int layers : {1, 3}) {
      for (bool both : {false, true}) {
        for (const std::vector<int64_t>& lengths :
             {std::vector<int64_t>{}, std::vector<int64_t>{4, 2, 0}}) {
          Case c{.mode = mode,
                 .steps = 4,
                 .batch = 3,
                 .input = 2,
                 .hidden = 3,
                 .layers = layers,
                 .both = both,
                 .lengths = lengths};
          SCOPED_TRACE(c.Name());
          MakeOp(c).CheckGradient(kInputs, {.step = 1e-5, .tolerance = 1e-8});
        }
      }
    }
  }
}

// With a loss on the last states alone, on the outputs alone, and gradients of some inputs alone.
TEST(Rnn, PartialGradients) {
  for (const char* mode : kModes) {
    Case c{.mode = mode, .layers = 2, .both = true, .lengths = {3, 1}};
    for (const std::string& slot : kInputs) MakeOp(c).CheckGradient({slot}, {.tolerance = 1e-8});
  }
}

TEST(Rnn, DropoutBetweenLayers) {
  Case c{.mode = "LSTM", .steps = 40, .batch = 5, .hidden = 4, .layers = 2, .dropout = 0.25f};
  OpTest op = MakeOp(c);
  VarValues env = op.Run(KernelMode::kReference, false);
  const Tensor& mask = std::get<Tensor>(env.at("DropoutState.0"));
  EXPECT_EQ("[1, 40, 5, 4]", mask.shape().ToString());
  double kept = 0;
  for (uint8_t m : mask.span<uint8_t>()) kept += m;
  EXPECT_NEAR(kept / 800, 0.75, 0.06);

  // The same as two ops with the mask between them.
  Case one = c;
  one.layers = 1;
  one.dropout = 0;
  auto layer = [&](int k, const Row& x, int64_t inputs) {
    OpTest test("rnn");
    test.Attr("mode", c.mode).Attr("hidden_size", int32_t{4}).Outputs("State", 2);
    test.Input("Input", {40, 5, inputs}, x);
    for (int s = 0; s < 2; ++s)
      test.Input("PreState", {1, 5, 4},
                 Part(Values(env, "PreState." + std::to_string(s)), 20 * k, 20));
    for (int i : {2 * k, 2 * k + 1, 4 + 2 * k, 5 + 2 * k}) {
      const std::string name = "WeightList." + std::to_string(i);
      test.Input("WeightList", std::get<Tensor>(env.at(name)).shape(), Values(env, name));
    }
    return Values(test.Run(KernelMode::kReference, false), "Out.0");
  };
  Row middle = layer(0, Values(env, "Input.0"), 2);
  for (size_t i = 0; i < middle.size(); ++i)
    middle[i] = mask.data<uint8_t>()[i] ? middle[i] / 0.75 : 0;
  const Row want = layer(1, middle, 4), got = Values(env, "Out.0");
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(want[i], got[i], 1e-5) << i;

  EXPECT_NE(Values(op.Step(1).Run(KernelMode::kReference, false), "Out.0"), got);
  c.is_test = true;
  c.dropout = 0.25f;
  Case plain = c;
  plain.dropout = 0;
  EXPECT_EQ(Values(MakeOp(c).Run(KernelMode::kAuto, false), "Out.0"),
            Values(MakeOp(plain).Run(KernelMode::kAuto, false), "Out.0"));
}

TEST(Rnn, DropoutGradient) {
  for (const char* mode : {"LSTM", "GRU"}) {
    for (float p : {0.3f, 1.0f}) {
      Case c{.mode = mode, .steps = 4, .hidden = 3, .layers = 3, .both = true, .dropout = p};
      MakeOp(c).CheckGradient({"WeightList", "PreState"}, {.tolerance = 1e-8});
    }
  }
}

TEST(Rnn, SeedDecidesAloneWhatIsDropped) {
  Case c{.steps = 8, .hidden = 4, .layers = 2, .dropout = 0.5f};
  OpTest op = MakeOp(c);
  op.Attr("seed", int32_t{9});
  const Row first = Values(op.Run(KernelMode::kAuto, false), "Out.0");
  EXPECT_EQ(first, Values(op.Seed(123).Step(4).Run(KernelMode::kAuto, false), "Out.0"));
}

// Without Reserve layers share their memory.
TEST(Rnn, WithoutReserve) {
  for (const char* mode : kModes) {
    Case c{.mode = mode,
           .steps = 5,
           .batch = 3,
           .hidden = 3,
           .layers = 4,
           .both = true,
           .lengths = {5, 3, 1}};
    const Row want = Values(MakeOp(c).Run(KernelMode::kReference, false), "Out.0");
    OpTest op = MakeOp(c);
    op.NoOutput("Reserve").NoOutput("DropoutState");
    EXPECT_EQ(want, Values(op.Run(KernelMode::kReference, false), "Out.0")) << mode;
  }
}

TEST(Rnn, FastAgainstReference) {
  std::mt19937 random(3);
  auto below = [&](int n) { return static_cast<int64_t>(random() % static_cast<uint32_t>(n)); };
  for (int round = 0; round < 32; ++round) {
    Case c{.mode = kModes[round % 4],
           .steps = 1 + below(9),
           .batch = 1 + below(20),
           .input = 1 + below(40),
           .hidden = 1 + below(70),
           .layers = static_cast<int>(1 + below(3)),
           .both = below(2) == 1,
           .dropout = below(3) == 0 ? 0.3f : 0.0f};
    if (below(2)) {
      for (int64_t n = 0; n < c.batch; ++n)
        c.lengths.push_back(below(static_cast<int>(c.steps) + 1));
    }
    SCOPED_TRACE(c.Name());
    MakeOp(c).CheckFast(1e-4, kInputs);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Rnn, Constraints) {
  const Case c{.layers = 1};
  auto op = [&](const Shape& input, const Shape& state, const Shape& w, int states = 2) {
    OpTest test("rnn");
    test.Attr("mode", c.mode).Attr("hidden_size", int32_t{2}).RandomInput("Input", input);
    for (int s = 0; s < states; ++s) test.RandomInput("PreState", state);
    test.RandomInput("WeightList", w).RandomInput("WeightList", {8, 2});
    test.RandomInput("WeightList", {8}).RandomInput("WeightList", {8}).Outputs("State", states);
    return test;
  };
  op({3, 2}, {1, 2, 2}, {8, 2}).ExpectError("rnn.C1");
  op({3, 2, 2}, {1, 3, 2}, {8, 2}).ExpectError("rnn.C2");
  op({3, 2, 2}, {1, 2, 2}, {8, 2}, 1).ExpectError("rnn.C2");
  op({3, 2, 2}, {1, 2, 2}, {8, 3}).ExpectError("rnn.C3");
  op({3, 2, 2}, {1, 2, 2}, {8, 2}).Attr("num_layers", int32_t{2}).ExpectError("rnn.C3");
  op({3, 2, 2}, {1, 2, 2}, {8, 2}).IntInput("SequenceLength", {3}, {1, 1, 1}).ExpectError("rnn.C4");
  op({3, 2, 2}, {1, 2, 2}, {8, 2}).Input("SequenceLength", {2}, {1, 1}).ExpectError("rnn.C4");
  OpTest mixed("rnn");
  mixed.Attr("mode", std::string("RNN_TANH")).Attr("hidden_size", int32_t{1});
  mixed.TensorInput("Input", Tensor::Zeros(DType::kFloat64, {1, 1, 1}));
  mixed.TensorInput("PreState", Tensor::Zeros(DType::kFloat32, {1, 1, 1}));
  for (const Shape& shape : {Shape{1, 1}, Shape{1, 1}, Shape{1}, Shape{1}})
    mixed.TensorInput("WeightList", Tensor::Zeros(DType::kFloat64, shape));
  mixed.ExpectError("rnn.C5");
  for (int64_t bad : {-1, 4}) {
    op({3, 2, 2}, {1, 2, 2}, {8, 2})
        .IntInput("SequenceLength", {2}, {1, bad})
        .ExpectError("rnn.C6");
  }
}

TEST(Rnn, GradConstraints) {
  auto op = [](const Shape& input, const Shape& reserve, const Shape& w) {
    OpTest test("rnn_grad");
    test.Attr("mode", std::string("RNN_TANH")).Attr("hidden_size", int32_t{2});
    test.RandomInput("Input", input).RandomInput("Reserve", reserve);
    test.RandomInput("WeightList", w).RandomInput("WeightList", {2, 2});
    test.RandomInput("WeightList", {2}).RandomInput("WeightList", {2});
    test.Outputs("WeightList@GRAD", 4);
    return test;
  };
  op({3, 2}, {7, 2, 2}, {2, 2}).ExpectError("rnn_grad.C1");
  op({3, 2, 2}, {6, 2, 2}, {2, 2}).ExpectError("rnn_grad.C2");
  op({3, 2, 2}, {7, 2, 2}, {2, 2}).RandomInput("Out@GRAD", {3, 2, 3}).ExpectError("rnn_grad.C2");
  op({3, 2, 2}, {7, 2, 2}, {2, 2}).RandomInput("State@GRAD", {2, 2, 2}).ExpectError("rnn_grad.C2");
  op({3, 2, 2}, {7, 2, 2}, {2, 3}).ExpectError("rnn_grad.C3");
  op({3, 2, 2}, {7, 2, 2}, {2, 2}).IntInput("SequenceLength", {1}, {1}).ExpectError("rnn_grad.C4");
  op({3, 2, 2}, {7, 2, 2}, {2, 2})
      .TensorInput("Out@GRAD", Tensor::Zeros(DType::kFloat64, {3, 2, 2}))
      .ExpectError("rnn_grad.C5");
  // Where dropout dropped, its masks are needed.
  OpTest two("rnn_grad");
  two.Attr("mode", std::string("RNN_TANH")).Attr("hidden_size", int32_t{2});
  two.Attr("num_layers", int32_t{2}).Attr("dropout_prob", 0.5f);
  two.RandomInput("Input", {3, 2, 2}).RandomInput("Reserve", {17, 2, 2});
  for (int i = 0; i < 4; ++i) two.RandomInput("WeightList", {2, 2});
  for (int i = 0; i < 4; ++i) two.RandomInput("WeightList", {2});
  two.ExpectError("rnn_grad.C7");
}

TEST(Rnn, NeedsReserveToBeDifferentiated) {
  OpTest op = MakeOp({});
  op.NoOutput("Reserve");
  try {
    op.CheckGradient({"Input"});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("rnn: needs its output Reserve"), std::string::npos) << e.what();
  }
}

// --- cudnn_lstm ---

// Two samples of three steps. The weights of a gate are rows here, in the order i, f, g, o.
void CompareCudnnLstm(const std::vector<int64_t>& lengths) {
  constexpr int64_t kSteps = 3, kBatch = 2, kInput = 2, kHidden = 2;
  const naive::Values x = naive::Draw(kSteps * kBatch * kInput, 1), h0 = naive::Draw(4, 2);
  const naive::Values c0 = naive::Draw(4, 3), w = naive::Draw(16, 4), u = naive::Draw(16, 5);
  const naive::Values b = naive::Draw(8, 6), b2 = naive::Draw(8, 7);
  naive::Lstm lstm;
  lstm.d = kHidden;
  lstm.peepholes = false;
  lstm.h0 = h0;
  lstm.c0 = c0;
  const size_t order[] = {2, 0, 1, 3};  // candidate, input, forget, output
  for (size_t gate : order) {
    for (size_t k = 0; k < 2; ++k) lstm.bias.push_back(b[gate * 2 + k] + b2[gate * 2 + k]);
  }
  const auto transposed = [&](const naive::Values& rows) {
    naive::Values columns;
    for (size_t j = 0; j < 2; ++j) {
      for (size_t gate : order) {
        for (size_t k = 0; k < 2; ++k) columns.push_back(rows[(gate * 2 + k) * 2 + j]);
      }
    }
    return columns;
  };
  lstm.weight = transposed(u);
  naive::Values gates, out(12, 0), last_h = h0, last_c = c0;
  std::vector<uint64_t> offsets = {0};
  for (size_t n = 0; n < 2; ++n) {
    offsets.push_back(offsets.back() + static_cast<uint64_t>(lengths[n]));
    for (int64_t t = 0; t < lengths[n]; ++t) {
      const naive::Values row = naive::Row(x, t * kBatch + static_cast<int64_t>(n), kInput);
      for (double z : naive::Times(row, transposed(w), 8)) gates.push_back(z);
    }
  }
  lstm.Run(offsets, gates);
  for (size_t n = 0; n < 2; ++n) {
    for (uint64_t at = offsets[n]; at < offsets[n + 1]; ++at) {
      for (size_t k = 0; k < 2; ++k) {
        last_h[n * 2 + k] = out[((at - offsets[n]) * 2 + n) * 2 + k] = lstm.out[at * 2 + k];
        last_c[n * 2 + k] = lstm.cells[at * 2 + k];
      }
    }
  }
  OpTest test("cudnn_lstm");
  test.Attr("hidden_size", 2)
      .Input("Input", {kSteps, kBatch, kInput}, x)
      .Input("InitH", {1, kBatch, kHidden}, h0)
      .Input("InitC", {1, kBatch, kHidden}, c0)
      .Input("WeightList", {8, 2}, w)
      .Input("WeightList", {8, 2}, u)
      .Input("WeightList", {8}, b)
      .Input("WeightList", {8}, b2);
  if (lengths[0] < kSteps) test.IntInput("SequenceLength", {kBatch}, lengths, DType::kInt32);
  test.Expect("Out", {kSteps, kBatch, kHidden}, out)
      .Expect("LastH", {1, kBatch, kHidden}, last_h)
      .Expect("LastC", {1, kBatch, kHidden}, last_c);
}

TEST(CudnnLstm, IsTheLstmOfRnn) {
  CompareCudnnLstm({3, 3});
  CompareCudnnLstm({1, 3});
}

TEST(CudnnLstm, Constraints) {
  const auto with = [](const Shape& input, const Shape& state) {
    OpTest test("cudnn_lstm");
    test.Attr("hidden_size", 1)
        .RandomInput("Input", input)
        .RandomInput("InitH", state)
        .RandomInput("InitC", state);
    return test;
  };
  with({1, 1, 1}, {1, 1, 1}).RandomInput("W", {16}).ExpectError("cudnn_lstm.C6");
  const auto with_weights = [&](const Shape& input, const Shape& state) {
    OpTest test = with(input, state);
    test.RandomInput("WeightList", {4, 1})
        .RandomInput("WeightList", {4, 1})
        .RandomInput("WeightList", {4})
        .RandomInput("WeightList", {4});
    return test;
  };
  with_weights({1, 1}, {1, 1, 1}).ExpectError("cudnn_lstm.C1");
  with_weights({1, 1, 1}, {2, 1, 1}).ExpectError("cudnn_lstm.C2");
  with_weights({1, 1, 2}, {1, 1, 1}).ExpectError("cudnn_lstm.C3");
}

}  // namespace coracle::rnn_test
