#pragma once
// Whether requests to a model may run together: each row of its outputs must depend on the same row
// of its inputs alone, by the declared traits of the ops.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/serve/infer_codec.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace coracle::serve {

class RowAnalysis {
 public:
  // `values` has the values of the parameters.
  RowAnalysis(const ProgramDesc& program, std::vector<Port> inputs, std::vector<Port> outputs,
              const Scope& values);

  // The rows stay apart in every request that the model accepts.
  bool always() const { return always_; }
  // Inputs have open dimensions besides the rows, such as the size of pictures. Then Joins tells.
  bool depends_on_shapes() const { return depends_; }
  // Whether the rows of these inputs, and of others that differ only in their number of rows, stay
  // apart. Inputs of other shapes than the model declares do not join. The answer is kept for each
  // class of shapes. Thread-safe.
  bool Joins(const std::vector<Tensor>& inputs);

 private:
  void Decide(const Scope& values);
  bool Proves(const std::vector<Shape>& shapes) const;

  std::vector<Port> inputs_, outputs_;
  ProgramDesc program_;  // if it depends on shapes
  Scope constants_;      // parameters that can hold a shape
  bool always_ = false, depends_ = false;
  std::mutex mutex_;
  std::map<std::vector<int64_t>, bool> known_;  // by the shapes without the number of rows
};

}  // namespace coracle::serve
