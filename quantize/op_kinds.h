#pragma once
// What quantisation knows about types of ops: which multiply by weights, connect such ops, or move
// elements. Only this file of the room names them.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>

#include <optional>
#include <string>
#include <vector>

namespace coracle::inline internal {

enum class QuantKind {
  kProduct,     // convolutions and matrix products
  kConnector,   // sums, products by element, concat, average pools: they compute on 8 bits
  kMove,        // moves or selects elements, so that scale and zero point pass through
  kActivation,  // a function of each element, which joins the op before it
  kOther,       // stays in floating point
};

QuantKind KindOf(const OpDesc& op);

// The operands of a product.
struct ProductSlots {
  std::string data, weight;     // slots; the weight is the operand that may be a parameter
  std::string bias;             // slot of the bias; "" if the op has none
  std::string output;           // slot
  bool weight_is_data = false;  // either operand may be a parameter, or none
};
// REQUIRES: KindOf(op) == kProduct.
ProductSlots SlotsOfProduct(const OpDesc& op);

// Which axes of data and weight a product adds over, and which belong to its output channels.
struct ProductAxes {
  int channel = 0;                   // of the weight: its output channels
  int reduced = 0;                   // of the weight: for blocks
  int data_begin = 0, data_end = 0;  // of the data: the axes of the input channels
};
// `weight_is_y` says which operand of a matrix product is the weight. nullopt for shapes that have
// no output channels, such as vectors.
std::optional<ProductAxes> AxesOfProduct(const OpDesc& op, const Shape& data, const Shape& weight,
                                         bool weight_is_y = true);

// The inputs and outputs of a connector or a move that hold its data.
std::vector<std::string> DataInputs(const OpDesc& op);
std::vector<std::string> DataOutputs(const OpDesc& op);

// Whether f(c x) = c f(x) for each c > 0: such an activation passes a positive factor on.
bool IsHomogeneous(const OpDesc& op);
// Whether the op is a sum of two tensors that broadcasts (elementwise_add).
bool IsSum(const OpDesc& op);
// Whether the op normalises its last axes by a gain and a bias (layer_norm).
bool IsLayerNorm(const OpDesc& op);
// Whether the op is a two-dimensional convolution (not a transposed one).
bool IsConvolution(const OpDesc& op);
bool IsTransposedConvolution(const OpDesc& op);
// Whether the op's data has its channels last (NHWC).
bool HasChannelsLast(const OpDesc& op);
// Whether the program holds quantised numbers already.
bool IsQuantizing(const OpDesc& op);

}  // namespace coracle::inline internal
