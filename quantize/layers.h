#pragma once
// Finds the ops of a program that compute on quantised numbers, and the variables that hold them.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/quantize/float_model.h>
#include <coracle/quantize/op_kinds.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace coracle::inline internal {

// The weight of a product.
struct LayerWeight {
  std::string name;  // a parameter
  std::string slot;
  ProductAxes axes;
};

// An op with quantised operands, together with the ops that its kernel applies to the sums.
struct QuantLayer {
  std::vector<size_t> ops;  // positions in the root block: the op, its bias, its activation
  QuantKind kind = QuantKind::kProduct;
  std::string type;                 // of the first op
  std::string output;               // of the last op
  std::vector<std::string> data;    // operands that are not parameters
  std::vector<LayerWeight> weight;  // none or one
  std::string bias;                 // a parameter, of the op itself or of the sum; "": none
  bool bias_in_slot = false;
  int64_t channels = 0;  // of the output of a product with a weight
  // Whether no product depends on its output: an error there is an error of the results.
  bool is_last = false;
};

struct LayerRules {
  bool connectors = true;       // false: only products
  bool with_sums = true;        // a sum also quantises the operand that comes from the op before it
  bool without_weight = false;  // products of two activations too
};

// Finds the layers of the root block, in its order. A product without a weight, or with one that is
// not float32, is not a layer.
std::vector<QuantLayer> FindProducts(const FloatModel& model, const LayerRules& rules);

// The products that are quantised, with the ops between them that then compute on 8 bits too.
struct QuantSelection {
  std::vector<QuantLayer> layers;
  // Maps each variable that is quantised to the variable whose range it uses: itself, or the
  // input of the moves that made it.
  std::map<std::string, std::string> range_of;
  // The operands to be replaced: (position of the op, variable).
  std::set<std::pair<size_t, std::string>> operands;
};
QuantSelection SelectLayers(const FloatModel& model, const std::vector<QuantLayer>& products,
                            const LayerRules& rules);

}  // namespace coracle::inline internal
