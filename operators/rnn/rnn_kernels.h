#pragma once
// The rnn op: sizes, memory between forward and backward, kernels. Not a public header.

#include <coracle/framework/op/op_context.h>
#include <coracle/operators/rnn/rnn_cell.h>

#include <cstdint>
#include <string>

namespace coracle::inline internal {

// "LSTM", "GRU", "RNN_TANH" or "RNN_RELU".
RnnMode RnnModeOf(const std::string& name);
// States passed from step to step: h, and for LSTM c.
constexpr int64_t StatesOf(RnnMode mode) { return mode == RnnMode::kLstm ? 2 : 1; }

struct RnnSpec {
  RnnMode mode = RnnMode::kLstm;
  int64_t steps = 0, batch = 0, input_size = 0;  // Input is [steps, batch, input_size]
  int64_t hidden = 0, layers = 1, directions = 1;
  double dropout = 0;  // between layers; 0 with is_test

  int64_t gates() const { return GatesOf(mode); }
  // Columns of a layer's input.
  int64_t InputSize(int64_t layer) const { return layer == 0 ? input_size : directions * hidden; }
  // Elements of a layer's output.
  int64_t OutputNumel() const { return steps * batch * directions * hidden; }
};

// Reads attrs and the shape of Input, in which a dimension may be -1 in an InferContext.
template <class Context>
RnnSpec MakeRnnSpec(const Context& ctx, const Shape& input) {
  RnnSpec spec;
  spec.mode = RnnModeOf(ctx.template Attr<std::string>("mode"));
  spec.steps = input[0];
  spec.batch = input[1];
  spec.input_size = input[2];
  spec.hidden = ctx.template Attr<int32_t>("hidden_size");
  spec.layers = ctx.template Attr<int32_t>("num_layers");
  spec.directions = ctx.template Attr<bool>("is_bidirec") ? 2 : 1;
  const bool is_test = ctx.template Attr<bool>("is_test");
  spec.dropout = is_test ? 0.0 : static_cast<double>(ctx.template Attr<float>("dropout_prob"));
  return spec;
}

// Values that forward keeps for backward, as rows of [batch, hidden] elements. For each layer and
// direction:
//   * the activated gates [steps, batch, gates * hidden];
//   * the states [steps + 1, batch, hidden] in time order; the initial state is the first, in the
//     reverse direction the last;
//   * LSTM: the cells, as the states;
//   * GRU: U h + b' of the candidate [steps, batch, hidden].
// At the end: after dropout, the outputs [steps, batch, directions * hidden] of all layers but the
// last one.
class RnnReserve {
 public:
  // Without `keep`, for a run without backward, all layers use the same rows.
  RnnReserve(const RnnSpec& spec, bool keep);
  int64_t rows() const { return outputs_ + num_outputs_ * output_rows_; }

  // Indices of first rows.
  int64_t Gates(int64_t layer, int64_t direction) const {
    return (keep_ ? layer * directions_ + direction : direction) * cell_rows_;
  }
  int64_t States(int64_t layer, int64_t direction) const {
    return Gates(layer, direction) + gate_rows_;
  }
  int64_t Extra(int64_t layer, int64_t direction) const {
    return States(layer, direction) + state_rows_;
  }
  // REQUIRES: the layer is not the last one.
  int64_t Output(int64_t layer) const { return outputs_ + layer % num_outputs_ * output_rows_; }

 private:
  bool keep_;
  int64_t directions_, gate_rows_, state_rows_, cell_rows_, output_rows_, num_outputs_, outputs_;
};

// `mode` kReference: plain loops; kAuto (float only): SIMD cells and the fast gemm.
template <class T>
Kernel RnnForward(const PrepareContext& ctx, KernelMode mode);
template <class T>
Kernel RnnBackward(const PrepareContext& ctx, KernelMode mode);

}  // namespace coracle::inline internal
