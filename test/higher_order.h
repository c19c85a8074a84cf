#pragma once
// Gradients of gradients, through Gradients(). For random weights w, computes the gradients g =
// d(sum w out)/d(inputs), then for random v the gradients of sum v g with respect to inputs and w,
// and so on. In double, compares the second and third order with central differences of the order
// before, along random directions.

#include <coracle/framework/ir/op.h>
#include <coracle/framework/tensor/tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace coracle {

// One op: inputs in the order of their slots, floating-point ones in double.
struct HigherOrderCase {
  struct In {
    std::string slot;
    Tensor value;
  };
  std::string type;
  std::vector<In> inputs;
  AttrList attrs;
  std::vector<std::pair<std::string, int>> outputs;  // numbers of variables other than 1
};

constexpr int kEveryOrder = 1000;

// `highest`: the highest order that has rules; the next one must be refused as kUnimplemented.
void CheckHigherGradients(const HigherOrderCase& c, int highest = kEveryOrder);

}  // namespace coracle
