#pragma once
// The cells of the rnn op: one row (one sample of the batch) of one time step. With a the input
// product W x + b (and, except for GRU, plus the recurrent one U h + b'):
//   LSTM  i, f, g, o = a;  c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c')
//   GRU   r, z = sigmoid(a + U h + b');  n = tanh(a + r (U h + b'));  h' = (h - n) z + n
//   RNN   h' = tanh(a) or max(a, 0)

#include <cstdint>

namespace coracle::inline internal {

enum class RnnMode { kLstm, kGru, kTanh, kRelu };

constexpr int64_t GatesOf(RnnMode mode) {
  return mode == RnnMode::kLstm ? 4 : mode == RnnMode::kGru ? 3 : 1;
}

// Pointers to rows. H is the number of hidden units, G the number of gates.
template <class T>
struct RnnCell {
  int64_t hidden = 0;
  const T* bias = nullptr;            // [G H]: all biases except GRU's b' of n
  const T* state = nullptr;           // [H] h
  const T* cell = nullptr;            // LSTM [H]: c
  const T* recurrent = nullptr;       // GRU [3 H]: U h
  const T* candidate_bias = nullptr;  // GRU [H]: b' of n
  T* gates = nullptr;                 // [G H] a without biases; replaced by the activated gates
  T* state_out = nullptr;             // [H] h'
  T* cell_out = nullptr;              // LSTM [H]: c'
  T* candidate = nullptr;             // GRU [H]: U h + b' of n
  T* out = nullptr;                   // [H] second copy of h'
};

// The gradient of one row. The prefix d means "gradient of".
template <class T>
struct RnnCellGrad {
  int64_t hidden = 0;
  const T* gates = nullptr;      // as written by RnnCell
  const T* state = nullptr;      // GRU: h
  const T* cell = nullptr;       // LSTM: c
  const T* cell_out = nullptr;   // LSTM: c'
  const T* candidate = nullptr;  // GRU: U h + b' of n
  const T* dout = nullptr;       // [H], or null for zeros: gradient of h' as an output
  // [H] gradient of h' as a state; replaced by the part of dh that does not flow through U.
  T* dstate = nullptr;
  T* dcell = nullptr;       // LSTM [H]: dc'; replaced by dc
  T* dgates = nullptr;      // [G H] written: gradient of a
  T* drecurrent = nullptr;  // GRU [3 H] written: gradient of U h
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

// The cells in plain loops.
template <class T>
RnnCells<T> ReferenceRnnCells(RnnMode mode);
extern template RnnCells<float> ReferenceRnnCells<float>(RnnMode);
extern template RnnCells<double> ReferenceRnnCells<double>(RnnMode);

// The cells in the widest SIMD of the machine.
RnnCells<float> SimdRnnCells(RnnMode mode);

// One row of a step of lstm (sequence_lstm.h), with sigmoid for the gates and tanh elsewhere.
// Order: candidate, input, forget and output gate. Null pointers mean no bias, no peepholes.
struct LstmRow {
  int64_t hidden = 0;
  const float *bias = nullptr, *peepholes = nullptr;  // [4 H], [3 H]
  const float* before = nullptr;                      // c
  float* gates = nullptr;                             // [4 H] z, replaced by the activated gates
  float *cell = nullptr, *state = nullptr;            // c', h'
};
struct LstmRowGrad {
  int64_t hidden = 0;
  const float* peepholes = nullptr;
  const float *gates = nullptr, *before = nullptr, *cell = nullptr;
  const float *dstate = nullptr, *dcell = nullptr;  // gradients of h' and c'
  float *dgates = nullptr, *dbefore = nullptr;      // gradients of z; of c, added to
};
struct LstmRows {
  void (*forward)(const LstmRow&);
  void (*backward)(const LstmRowGrad&);
};
LstmRows SimdLstmRows();

}  // namespace coracle::inline internal
