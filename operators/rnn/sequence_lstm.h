#pragma once
// LSTM over sequences of different lengths: the recurrence shared by lstm and lstmp. The columns of
// the gates z = x W + r U + b are candidate, input, forget, output. With g, act, cell and proj the
// activations and p the peepholes (0 if absent):
//   i = g(z_i + p_i c), f = g(z_f + p_f c), c' = clip(f c + i act(z_c)), o = g(z_o + p_o c'),
//   h = o cell(c'), r = h, or with a projection r = clip(proj(h P)).
//
// Rows between forward and backward are sorted (batched_sequences.h).

#include <coracle/operators/rnn/batched_sequences.h>
#include <coracle/operators/rnn/gate_activation.h>

#include <cstdint>

namespace coracle::inline internal {

struct LstmSpec {
  int64_t rows = 0, hidden = 0, width = 0;  // width: columns of r
  bool peepholes = false, reverse = false, projected = false;
  GateActivation gate, cell, candidate, projection;
  double cell_clip = 0, projection_clip = 0;  // 0: none
};
// Reads the attrs of the op; `weight` is U [width, 4 D].
LstmSpec LstmSpecOf(const PrepareContext& ctx, int64_t rows, const TensorArg& weight);

// Absent tensors convert to false.
struct LstmArgs {
  TensorArg weight;      // U [width, 4 D]
  TensorArg bias;        // [1, 4 D], with peepholes [1, 7 D]
  TensorArg projection;  // P [D, width]
  TensorArg h0, c0;      // [sequences, width] and [sequences, D]
  TensorArg out, cell;   // r and c' [rows, width] and [rows, D]
  // Values that backward reads, sorted: activated gates [rows, 4 D], c' [rows, D], and with a
  // projection h [rows, D].
  TensorArg gates, cells, hiddens;
};

template <class T>
class LstmForward {
 public:
  LstmForward(const PrepareContext& ctx, const LstmSpec& spec, const LstmArgs& args,
              KernelMode mode);
  // `input` is x W [rows, 4 D] in the row order of the tensor.
  void operator()(Workspace& ws, const Sequences& sequences, const T* input) const;

 private:
  struct Step;
  void RunCells(const Step& step) const;

  LstmSpec spec_;
  LstmArgs args_;
  KernelMode mode_;
  BatchedSequences batches_;
  TensorArg states_;             // r of all steps, sorted
  TensorArg first_h_, first_c_;  // H0 and C0, sorted
};

struct LstmGradArgs {
  TensorArg dout, dcell;  // gradients of r and c'; absent: zeros
  TensorArg dinput, dweight, dbias, dprojection, dh0, dc0;
};

template <class T>
class LstmBackward {
 public:
  LstmBackward(const PrepareContext& ctx, const LstmSpec& spec, const LstmArgs& args,
               const LstmGradArgs& grads, KernelMode mode);
  void operator()(Workspace& ws, const Sequences& sequences) const;

 private:
  struct Run;
  void RunStep(const Run& run, int64_t step) const;
  void WriteParameters(Workspace& ws, const Run& run) const;

  LstmSpec spec_;
  LstmArgs args_;
  LstmGradArgs grads_;
  KernelMode mode_;
  BatchedSequences batches_;
  // Sorted, for all steps: gradients of z, c', r and (with a projection) h; the r before a step.
  TensorArg dgates_, dcells_, dstates_, dhiddens_, before_;
  TensorArg first_h_, first_c_;    // H0 and C0, sorted
  TensorArg dfirst_h_, dfirst_c_;  // and their gradients
};

extern template class LstmForward<float>;
extern template class LstmForward<double>;
extern template class LstmBackward<float>;
extern template class LstmBackward<double>;

}  // namespace coracle::inline internal
