#pragma once
// Whether requests to a model may run together: each row of its outputs must depend on the same row
// of its inputs alone, by the declared traits of the ops.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/serve/infer_codec.h>

#include <cstdint>
#include <future>
#include <map>
#include <mutex>
#include <vector>

namespace coracle::serve {

class RowAnalysis {
 public:
  // `values` has the values of the parameters.
  RowAnalysis(const ProgramDesc& program, std::vector<Port> inputs, std::vector<Port> outputs,
              const Scope& values);

  // Runs change variables that the next run reads. Then requests never join.
  bool keeps_state() const { return keeps_state_; }
  // The rows stay apart in every request that the model accepts.
  bool always() const { return always_; }
  // Inputs have open dimensions besides the rows, such as the size of pictures. Then Joins decides.
  bool depends_on_shapes() const { return depends_; }
  // Whether the rows of these inputs, and of others that differ only in their number of rows, stay
  // apart. Inputs of other shapes than the model declares do not join. The first call for a class
  // of shapes proves the answer, which is kept; others for the same class wait for it until the
  // deadline, and then get false. Other classes do not wait. Thread-safe.
  bool Joins(const std::vector<Tensor>& inputs,
             Clock::time_point deadline = Clock::time_point::max());

 private:
  using ClassOfShapes = std::vector<int64_t>;  // the dimensions without the number of rows

  void Decide(const Scope& values);
  bool Proves(const std::vector<Shape>& shapes) const;
  bool Prove(const ClassOfShapes& shape_class, const std::vector<Shape>& shapes,
             std::promise<bool> answer);

  std::vector<Port> inputs_, outputs_;
  ProgramDesc program_;  // if it depends on shapes
  Scope constants_;      // parameters that can hold a shape
  bool keeps_state_ = false, always_ = false, depends_ = false;
  std::mutex mutex_;
  std::map<ClassOfShapes, std::shared_future<bool>> answers_;  // also those that are being proved
};

}  // namespace coracle::serve
