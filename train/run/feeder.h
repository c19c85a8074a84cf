#pragma once
// Feeder: feeds the columns of a batch to the inputs of a program. An input with lod_level gets
// sequences with their LoD; any other input gets them padded with zeros to one length.

#include <coracle/framework/ir/program.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/job/job.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

class Feeder {
 public:
  // Finds a column for each input: the one bound to it, else the one with its name. A row may have
  // another shape than the input if it has as many elements ([1, 28, 28] and [784]). An int64 input
  // accepts float32 numbers, and a float32 input accepts int64 numbers. Throws kNotFound for an
  // input without a column and kInvalidArgument for a column that does not fit; errors about an
  // input that is not bound begin with `source`.
  //
  // With several ranks, which divide a batch, all ranks must call Bind together, since they pad
  // sequences to the longest one of the whole batch. An input with a fixed number of rows then does
  // not fit.
  Feeder(const ProgramDesc& program, const std::vector<std::string>& inputs, const DataSource& data,
         const std::vector<BindConfig>& bind, const std::string& source,
         const Ranks& ranks = Ranks());

  const std::vector<std::string>& inputs() const { return inputs_; }
  // Returns the feeds in the order of inputs(): views of the batch's tensors, or their values
  // converted to the input's dtype. Valid until the next call. Throws BadRow for a number that the
  // dtype cannot represent, and for a sequence longer than the input.
  const std::vector<Tensor>& Bind(const std::vector<Tensor>& batch);

 private:
  std::vector<std::string> inputs_;
  std::vector<size_t> column_;
  std::vector<Shape> shape_;  // shapes of the feeds; [0] is set to the batch's rows
  std::vector<bool> padded_;  // whether sequences are padded along dimension 1
  std::vector<DType> dtype_;  // dtypes of the feeds
  std::vector<Tensor> feeds_;
  Ranks ranks_;
};

// The variables that the program must be fed: its ops read them, no op writes them, and they are
// not persistable.
std::vector<std::string> FindInputs(const ProgramDesc& program);

}  // namespace coracle::inline internal
