#pragma once
// Value: the importer's knowledge of one value of an ONNX graph.

#include <coracle/framework/base/error.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>

#include <memory>
#include <optional>
#include <vector>

namespace coracle::onnx {

struct Value {
  // Its variable in the program. A constant gets one when an op reads it.
  Variable var = {};
  // Its elements, if they are known during import.
  std::optional<Tensor> constant = {};
  int data_type = 0;  // ONNX's type: some are held in wider variables (dtypes.h)
  // ONNX's tensors of rank 0 have the shape [1] in the program, as in Paddle; the flag marks them.
  bool scalar = false;
  // A floating-point initializer that training may change, so that ops on it are not folded.
  bool is_parameter = false;
  // The elements of a sequence, whose number is known during import.
  std::shared_ptr<const std::vector<std::shared_ptr<Value>>> elements = {};
  bool is_nothing = false;  // an absent optional value
  // The keys of ZipMap's maps, whose values are the rows of this tensor.
  std::shared_ptr<Value> keys = {};

  bool is_tensor() const { return !elements && !is_nothing; }
  // Throws kInvalidArgument for a sequence and for an absent optional value.
  void RequireTensor() const {
    if (!is_tensor() || (!constant && !var))
      ThrowInvalid(elements ? "a sequence where a tensor must be"
                            : "nothing where a tensor must be");
  }
  // These throw like RequireTensor.
  DType dtype() const {
    RequireTensor();
    return constant ? constant->dtype() : var.dtype();
  }
  // In the program.
  const Shape& stored_shape() const {
    RequireTensor();
    return constant ? constant->shape() : var.shape();
  }
  // In ONNX; -1 is an unknown dim.
  Shape shape() const { return scalar ? Shape{} : stored_shape(); }
  int rank() const { return scalar ? 0 : stored_shape().rank(); }
};

// Graphs share values, so that a constant gets only one variable.
using ValuePtr = std::shared_ptr<Value>;
using Values = std::vector<ValuePtr>;

}  // namespace coracle::onnx
