#include <coracle/test/op_test.h>
#include <coracle/test/operators/rnn/naive_recurrent.h>

namespace coracle::attention_lstm_test {

using naive::Activate;
using naive::Draw;
using naive::Row;
using naive::Times;
using naive::Values;

struct Case {
  bool scalar = false, state = false;
  std::string gate = "sigmoid", cell = "tanh", candidate = "tanh";
};

constexpr int64_t kM = 3, kD = 2;
const std::vector<uint64_t> kOffsets = {0, 2, 2, 5, 6};

// The op as its page describes it, one step after the other.
void Check(const Case& c) {
  const Values x = Draw(6 * kM, 1, 2), c0 = Draw(4 * kD, 2), h0 = Draw(4 * kD, 3);
  const Values fit = Draw(kM + kD, 4, 2), weight = Draw((kM + kD) * 4 * kD, 5);
  const Values bias = Draw(4 * kD, 6);
  const double fit_bias = 0.3, scalar = 1.5, scalar_bias = -0.2;
  Values hidden, cells;
  for (size_t s = 0; s + 1 < kOffsets.size(); ++s) {
    Values cell = Row(c0, static_cast<int64_t>(s), kD);
    Values h = Row(c.state ? h0 : Values(), static_cast<int64_t>(s), kD);
    for (uint64_t step = kOffsets[s]; step < kOffsets[s + 1]; ++step) {
      Values joined = h, mean(kM, 0);
      double sum = 0;
      for (uint64_t t = kOffsets[s]; t < kOffsets[s + 1]; ++t) {
        Values both = Row(x, static_cast<int64_t>(t), kM);
        both.insert(both.end(), cell.begin(), cell.end());
        double e = std::max(Times(both, fit, 1)[0] + (c.scalar ? fit_bias : 0), 0.0);
        if (c.scalar) e = std::max(e * scalar + scalar_bias, 0.0);
        sum += std::exp(e);
        for (size_t k = 0; k < mean.size(); ++k) mean[k] += std::exp(e) * both[k];
      }
      for (double v : mean) joined.push_back(v / sum);
      const Values z = Times(joined, weight, 4 * kD);
      for (size_t k = 0; k < kD; ++k) {
        const auto a = [&](size_t g) { return z[g * kD + k] + bias[g * kD + k]; };
        cell[k] =
            Activate(c.gate, a(0)) * cell[k] + Activate(c.gate, a(1)) * Activate(c.candidate, a(3));
        h[k] = Activate(c.gate, a(2)) * Activate(c.cell, cell[k]);
      }
      hidden.insert(hidden.end(), h.begin(), h.end());
      cells.insert(cells.end(), cell.begin(), cell.end());
    }
  }
  OpTest test("attention_lstm");
  test.Attr("gate_activation", c.gate)
      .Attr("cell_activation", c.cell)
      .Attr("candidate_activation", c.candidate)
      .Input("X", {6, kM}, x)
      .Lod({kOffsets})
      .Input("C0", {4, kD}, c0)
      .Input("AttentionWeight", {kM + kD, 1}, fit)
      .Input("LSTMWeight", {kM + kD, 4 * kD}, weight)
      .Input("LSTMBias", {1, 4 * kD}, bias);
  if (c.state) test.Input("H0", {4, kD}, h0);
  if (c.scalar)
    test.Input("AttentionBias", {1, 1}, {fit_bias})
        .Input("AttentionScalar", {1, 1}, {scalar})
        .Input("AttentionScalarBias", {1, 1}, {scalar_bias});
  test.Expect("Hidden", {6, kD}, hidden, 2e-5)
      .Expect("Cell", {6, kD}, cells, 2e-5)
      .ExpectLod("Hidden", {kOffsets});
}

TEST(AttentionLstm, AgreesWithItsFormula) {
  Check({});
  Check({true, true});
  Check({false, true, "tanh", "relu", "identity"});
  Check({true, false, "relu", "identity", "sigmoid"});
}

OpTest Small(const Shape& x, const Shape& fit, const Shape& state, const LoD& lod) {
  return std::move(OpTest("attention_lstm")
                       .RandomInput("X", x)
                       .Lod(lod)
                       .RandomInput("C0", state)
                       .RandomInput("AttentionWeight", fit)
                       .RandomInput("LSTMWeight", {2, 4})
                       .RandomInput("LSTMBias", {1, 4}));
}

TEST(AttentionLstm, WithoutRows) {
  Small({0, 1}, {2, 1}, {2, 1}, {{0, 0, 0}}).Expect("Hidden", {0, 1}, {});
}

TEST(AttentionLstm, Constraints) {
  const LoD lod = {{0, 2}};
  Small({2}, {2, 1}, {1, 1}, lod).ExpectError("attention_lstm.C1");
  Small({2, 1}, {3, 1}, {1, 1}, lod).ExpectError("attention_lstm.C2");
  Small({2, 1}, {2, 1}, {1, 1}, lod)
      .RandomInput("AttentionScalar", {2, 1})
      .ExpectError("attention_lstm.C2");
  Small({2, 1}, {2, 1}, {2, 1}, lod).ExpectError("attention_lstm.C3");
  Small({2, 1}, {2, 1}, {1, 1}, lod)
      .TensorInput("H0", Tensor::Zeros(DType::kInt64, {1, 1}))
      .ExpectError("attention_lstm.C4");
  Small({2, 1}, {2, 1}, {1, 1}, {}).ExpectError("attention_lstm.C5");
}
}  // namespace coracle::attention_lstm_test
