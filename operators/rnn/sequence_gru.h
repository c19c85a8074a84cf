#pragma once
// GRU over sequences of different lengths: the recurrence shared by gru, gru_unit and fusion_gru.
// With g and act the activations and the columns of x W + b in the order update, reset, candidate:
//   u, r = g(x_ur + h U_g),  n = act(x_n + (r h) U_c),  h' = (1 - u) h + u n
// or with origin_mode h' = u h + (1 - u) n. The weight has the elements of U_g [D, 2 D], followed
// by the elements of U_c [D, D].
//
// Rows between forward and backward are sorted (batched_sequences.h).

#include <coracle/operators/rnn/batched_sequences.h>
#include <coracle/operators/rnn/gate_activation.h>

#include <cstdint>

namespace coracle::inline internal {

struct GruSpec {
  int64_t rows = 0, hidden = 0;
  bool reverse = false, origin_mode = false;
  GateActivation gate, candidate;
};

// Absent tensors convert to false.
struct GruArgs {
  TensorArg weight;  // [D, 3 D], see above
  TensorArg bias;    // [1, 3 D]
  TensorArg h0;      // [sequences, D]
  TensorArg out;     // h' [rows, D]
  // Values that backward reads, sorted: the activated u and r [rows, 2 D], followed by n [rows, D];
  // r h [rows, D].
  TensorArg gates, resets;
  TensorArg states = {};  // h' [rows, D], sorted; only the forward kernel writes it
};

template <class T>
class GruForward {
 public:
  GruForward(const PrepareContext& ctx, const GruSpec& spec, const GruArgs& args, KernelMode mode);
  // `input` is x W [rows, 3 D] in the row order of the tensor.
  void operator()(Workspace& ws, const Sequences& sequences, const T* input) const;

 private:
  struct Run;
  void RunStep(const Run& run, int64_t step) const;

  GruSpec spec_;
  GruArgs args_;
  KernelMode mode_;
  BatchedSequences batches_;
  TensorArg first_;  // H0, sorted
};

struct GruGradArgs {
  TensorArg dout;  // absent: zeros
  TensorArg dinput, dweight, dbias, dh0;
};

template <class T>
class GruBackward {
 public:
  GruBackward(const PrepareContext& ctx, const GruSpec& spec, const GruArgs& args,
              const GruGradArgs& grads, KernelMode mode);
  void operator()(Workspace& ws, const Sequences& sequences) const;

 private:
  struct Run;
  void RunStep(const Run& run, int64_t step) const;
  void WriteParameters(Workspace& ws, const Run& run) const;

  GruSpec spec_;
  GruArgs args_;
  GruGradArgs grads_;
  KernelMode mode_;
  BatchedSequences batches_;
  // Sorted, for all steps: gradients of u and r before their activation, of n before its
  // activation, of r h and of h'; the h before a step.
  TensorArg dgates_, dcandidates_, dresets_, dstates_, before_;
  TensorArg dfirst_;  // gradient of H0, sorted
};

extern template class GruForward<float>;
extern template class GruForward<double>;
extern template class GruBackward<float>;
extern template class GruBackward<double>;

}  // namespace coracle::inline internal
