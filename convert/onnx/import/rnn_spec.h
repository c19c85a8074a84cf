#pragma once
// Shared by LSTM, GRU and RNN: their inputs and attributes in one form.

#include <coracle/convert/onnx/import/node_context.h>

#include <functional>
#include <string>
#include <vector>

namespace coracle::onnx {

// One activation with its parameters.
struct RnnActivation {
  std::string type;  // ONNX's name
  float alpha = 0;
  float beta = 0;
  bool operator==(const RnnActivation&) const = default;
};

struct RnnSpec {
  int gates = 1;       // rows of W are gates * hidden
  int directions = 1;  // 2: forward, then reverse
  bool reverse = false;
  bool batch_first = false;
  int64_t hidden = 0;
  DType dtype = DType::kFloat32;
  float clip = 0;                          // 0: none
  std::vector<RnnActivation> activations;  // of the first direction, then of the second
  // Variables in the program, with time first; initial states have the direction first. Empty:
  // not given.
  Variable x = {};                     // [T, N, I]
  Variable w = {};                     // [D, gates H, I]
  Variable r = {};                     // [D, gates H, H]
  Variable b = {};                     // [D, 2 gates H]
  Variable lengths = {};               // [N]
  std::vector<Variable> initial = {};  // [D, N, H] each: h, and c of an LSTM
  Variable peepholes = {};             // [D, 3 H]

  bool IsReverse(int direction) const { return directions == 2 ? direction == 1 : reverse; }
  const RnnActivation& Activation(int direction, int i) const {
    const size_t each = activations.size() / static_cast<size_t>(directions);
    return activations[static_cast<size_t>(direction) * each + static_cast<size_t>(i)];
  }
};

// Reads all attributes except those of a single op. `defaults` are the activations.
RnnSpec ReadRnnSpec(NodeContext& node, int gates, const std::vector<std::string>& defaults);

// The part of a parameter or state [directions, ...] for one direction, without that dimension.
Variable OfDirection(NodeContext& node, const RnnSpec& spec, const Variable& x, int direction);

// Sets the outputs Y [T, D, N, H] and last states [D, N, H], in the layout of the node.
void SetRnnOutputs(NodeContext& node, const RnnSpec& spec, const Variable& y,
                   const std::vector<Variable>& last);

// x by the transposed weights of a direction: W, or R if `of_state`.
using RnnProduct = std::function<Variable(const Variable& x, const Variable& weights, int direction,
                                          bool of_state)>;

// The cell as single ops, one step at a time.
struct RnnCell {
  bool couples = false;              // LSTM: attribute input_forget
  bool linear_before_reset = false;  // GRU
  RnnProduct product = {};           // LSTM: replaces the products of matrices
};
void ImportByStep(NodeContext& node, const RnnSpec& spec, const RnnCell& cell);

}  // namespace coracle::onnx
