#pragma once
// The cells of the rnn op: one row (one sample of the batch) of one time step. With a the input
// product W x + b (and, but for GRU, the recurrent one U h + b' too):
//   LSTM  i, f, g, o = a;  c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c')
//   GRU   r, z = sigmoid(a + U h + b');  n = tanh(a + r (U h + b'));  h' = (h - n) z + n
//   RNN   h' = tanh(a) or max(a, 0)

#include <cstdint>

namespace coracle {

enum class RnnMode { kLstm, kGru, kTanh, kRelu };

constexpr int64_t GatesOf(RnnMode mode) {
  return mode == RnnMode::kLstm ? 4 : mode == RnnMode::kGru ? 3 : 1;
}

// Pointers to rows. H is the number of hidden units, G that of gates.
template <class T>
struct RnnCell {
  int64_t hidden = 0;
  const T* bias = nullptr;            // [G H]: all of it but GRU's b' of n
  const T* state = nullptr;           // [H] h
  const T* cell = nullptr;            // LSTM [H]: c
  const T* recurrent = nullptr;       // GRU [3 H]: U h
  const T* candidate_bias = nullptr;  // GRU [H]: b' of n
  T* gates = nullptr;                 // [G H] a without biases; becomes the activated gates
  T* state_out = nullptr;             // [H] h'
  T* cell_out = nullptr;              // LSTM [H]: c'
  T* candidate = nullptr;             // GRU [H]: U h + b' of n
  T* out = nullptr;                   // [H] h' once more
};

// The gradient of one row. "d" stands for the gradient of.
template <class T>
struct RnnCellGrad {
  int64_t hidden = 0;
  const T* gates = nullptr;      // as RnnCell leaves them
  const T* state = nullptr;      // GRU: h
  const T* cell = nullptr;       // LSTM: c
  const T* cell_out = nullptr;   // LSTM: c'
  const T* candidate = nullptr;  // GRU: U h + b' of n
  const T* dout = nullptr;       // [H], or null for zeros: what h' as an output got
  // [H] what h' as a state got; becomes the part of dh that does not flow through U.
  T* dstate = nullptr;
  T* dcell = nullptr;       // LSTM [H]: dc'; becomes dc
  T* dgates = nullptr;      // [G H] written: of a
  T* drecurrent = nullptr;  // GRU [3 H] written: of U h
};

template <class T>
using RnnCellFn = void (*)(const RnnCell<T>&);
template <class T>
using RnnCellGradFn = void (*)(const RnnCellGrad<T>&);

template <class T>
struct RnnCells {
  RnnCellFn<T> forward = nullptr;
  RnnCellGradFn<T> backward = nullptr;
};

// Plain loops.
template <class T>
RnnCells<T> ReferenceRnnCells(RnnMode mode);
extern template RnnCells<float> ReferenceRnnCells<float>(RnnMode);
extern template RnnCells<double> ReferenceRnnCells<double>(RnnMode);

// The widest SIMD of the machine.
RnnCells<float> SimdRnnCells(RnnMode mode);

// One row of a step of lstm (sequence_lstm.h), with sigmoid for the gates and tanh else: candidate,
// input, forget and output gate. Null pointers: no bias, no peepholes.
struct LstmRow {
  int64_t hidden = 0;
  const float *bias = nullptr, *peepholes = nullptr;  // [4 H], [3 H]
  const float* before = nullptr;                      // c
  float* gates = nullptr;                             // [4 H] z, becomes the activated gates
  float *cell = nullptr, *state = nullptr;            // c', h'
};
struct LstmRowGrad {
  int64_t hidden = 0;
  const float* peepholes = nullptr;
  const float *gates = nullptr, *before = nullptr, *cell = nullptr;
  const float *dstate = nullptr, *dcell = nullptr;  // what arrived at h' and c'
  float *dgates = nullptr, *dbefore = nullptr;      // of z; that of c, added to
};
struct LstmRows {
  void (*forward)(const LstmRow&);
  void (*backward)(const LstmRowGrad&);
};
LstmRows SimdLstmRows();

}  // namespace coracle
