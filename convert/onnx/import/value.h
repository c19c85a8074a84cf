#pragma once
// Value: what the importer knows of one value of an ONNX graph.

#include <coracle/framework/base/error.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>

#include <memory>
#include <optional>
#include <vector>

namespace coracle::onnx {

struct Value {
  // Its variable in the program. A constant has none until an op reads it.
  Variable var = {};
  // Its elements, where they are known when the model is imported.
  std::optional<Tensor> constant = {};
  int data_type = 0;  // ONNX's: uint16 and uint32 are held in wider variables
  // ONNX's tensors of rank 0 have the shape [1] in the program, as Paddle's have; the flag keeps
  // the difference.
  bool scalar = false;
  // An initializer of floats that training may change, so that ops on it are not folded.
  bool is_parameter = false;
  // Of a sequence its elements: how many there are is known when the model is imported.
  std::shared_ptr<const std::vector<std::shared_ptr<Value>>> elements = {};
  bool is_nothing = false;  // an optional value that is not there

  bool is_tensor() const { return !elements && !is_nothing; }
  // Throws kInvalidArgument for a sequence and for an optional value that is not there.
  void RequireTensor() const {
    if (!is_tensor() || (!constant && !var))
      ThrowInvalid(elements ? "a sequence where a tensor must be"
                            : "nothing where a tensor must be");
  }
  // They throw as RequireTensor.
  DType dtype() const {
    RequireTensor();
    return constant ? constant->dtype() : var.dtype();
  }
  // As in the program.
  const Shape& stored_shape() const {
    RequireTensor();
    return constant ? constant->shape() : var.shape();
  }
  // As in ONNX; a dim of -1 is not known.
  Shape shape() const { return scalar ? Shape{} : stored_shape(); }
  int rank() const { return scalar ? 0 : stored_shape().rank(); }
};

// Graphs share what they see of each other, so that a constant gets its variable once.
using ValuePtr = std::shared_ptr<Value>;
using Values = std::vector<ValuePtr>;

}  // namespace coracle::onnx
