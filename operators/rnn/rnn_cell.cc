#include <coracle/operators/activation/activation_formulas.h>
#include <coracle/operators/rnn/rnn_cell.h>

#include <cmath>

namespace coracle::inline internal {
namespace {

using activation::SigmoidOf;

template <class T>
void Lstm(const RnnCell<T>& c) {
  const int64_t n = c.hidden;
  for (int64_t k = 0; k < n; ++k) {
    T* gate = c.gates + k;
    const T* bias = c.bias + k;
    const T i = SigmoidOf(gate[0] + bias[0]), f = SigmoidOf(gate[n] + bias[n]);
    const T g = std::tanh(gate[2 * n] + bias[2 * n]);
    const T o = SigmoidOf(gate[3 * n] + bias[3 * n]);
    gate[0] = i;
    gate[n] = f;
    gate[2 * n] = g;
    gate[3 * n] = o;
    c.cell_out[k] = f * c.cell[k] + i * g;
    c.out[k] = c.state_out[k] = o * std::tanh(c.cell_out[k]);
  }
}

template <class T>
void LstmGrad(const RnnCellGrad<T>& c) {
  const int64_t n = c.hidden;
  for (int64_t k = 0; k < n; ++k) {
    const T i = c.gates[k], f = c.gates[n + k], g = c.gates[2 * n + k], o = c.gates[3 * n + k];
    const T t = std::tanh(c.cell_out[k]);
    const T dh = c.dstate[k] + (c.dout ? c.dout[k] : T(0));
    const T dc = c.dcell[k] + dh * o * (1 - t * t);
    c.dgates[k] = dc * g * i * (1 - i);
    c.dgates[n + k] = dc * c.cell[k] * f * (1 - f);
    c.dgates[2 * n + k] = dc * i * (1 - g * g);
    c.dgates[3 * n + k] = dh * t * o * (1 - o);
    c.dcell[k] = dc * f;
    c.dstate[k] = 0;
  }
}

template <class T>
void Gru(const RnnCell<T>& c) {
  const int64_t n = c.hidden;
  for (int64_t k = 0; k < n; ++k) {
    T* gate = c.gates + k;
    const T *bias = c.bias + k, *u = c.recurrent + k;
    const T r = SigmoidOf(gate[0] + bias[0] + u[0]), z = SigmoidOf(gate[n] + bias[n] + u[n]);
    const T inner = u[2 * n] + c.candidate_bias[k];
    const T candidate = std::tanh(gate[2 * n] + bias[2 * n] + r * inner);
    gate[0] = r;
    gate[n] = z;
    gate[2 * n] = candidate;
    c.candidate[k] = inner;
    c.out[k] = c.state_out[k] = (c.state[k] - candidate) * z + candidate;
  }
}

template <class T>
void GruGrad(const RnnCellGrad<T>& c) {
  const int64_t n = c.hidden;
  for (int64_t k = 0; k < n; ++k) {
    const T r = c.gates[k], z = c.gates[n + k], candidate = c.gates[2 * n + k];
    const T dh = c.dstate[k] + (c.dout ? c.dout[k] : T(0));
    const T dz = dh * (c.state[k] - candidate) * z * (1 - z);
    const T dn = dh * (1 - z) * (1 - candidate * candidate);
    const T dr = dn * c.candidate[k] * r * (1 - r);
    c.dgates[k] = c.drecurrent[k] = dr;
    c.dgates[n + k] = c.drecurrent[n + k] = dz;
    c.dgates[2 * n + k] = dn;
    c.drecurrent[2 * n + k] = dn * r;
    c.dstate[k] = dh * z;
  }
}

template <class T, bool relu>
void Simple(const RnnCell<T>& c) {
  for (int64_t k = 0; k < c.hidden; ++k) {
    const T a = c.gates[k] + c.bias[k];
    const T h = relu ? (a < 0 ? T(0) : a) : std::tanh(a);
    c.out[k] = c.state_out[k] = c.gates[k] = h;
  }
}

template <class T, bool relu>
void SimpleGrad(const RnnCellGrad<T>& c) {
  for (int64_t k = 0; k < c.hidden; ++k) {
    const T h = c.gates[k];
    const T dh = c.dstate[k] + (c.dout ? c.dout[k] : T(0));
    c.dgates[k] = relu ? (h <= 0 ? T(0) : dh) : dh * (1 - h * h);
    c.dstate[k] = 0;
  }
}

}  // namespace

template <class T>
RnnCells<T> ReferenceRnnCells(RnnMode mode) {
  switch (mode) {
    case RnnMode::kLstm:
      return {Lstm<T>, LstmGrad<T>};
    case RnnMode::kGru:
      return {Gru<T>, GruGrad<T>};
    case RnnMode::kTanh:
      return {Simple<T, false>, SimpleGrad<T, false>};
    case RnnMode::kRelu:
      return {Simple<T, true>, SimpleGrad<T, true>};
  }
  return {};
}

template RnnCells<float> ReferenceRnnCells<float>(RnnMode);
template RnnCells<double> ReferenceRnnCells<double>(RnnMode);

}  // namespace coracle::inline internal
