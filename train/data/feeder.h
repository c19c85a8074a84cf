#pragma once
// Feeder: gives a program's inputs the columns of a batch. Sequences are fed with their LoD to an
// input with lod_level, and to another one filled with zeros up to one length.

#include <coracle/framework/ir/program.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/job/job.h>

#include <string>
#include <vector>

namespace coracle {

class Feeder {
 public:
  // Finds a column for each input: the one bound to it, else the one of its name. A row may have
  // another shape than the input when it has as many elements ([1, 28, 28] and [784]), and float32
  // numbers may be fed to an int64 input and int64 ones to a float32 input. Throws
  // kNotFound for an input without column, kInvalidArgument for one that does not fit; `source`
  // is the place in errors about what is not bound. Of several ranks, which divide a batch, all pad
  // sequences to the longest of the whole one; they call Bind together, and an input whose number
  // of rows is fixed is one that does not fit.
  Feeder(const ProgramDesc& program, const std::vector<std::string>& inputs, const DataSource& data,
         const std::vector<BindConfig>& bind, const std::string& source,
         const Ranks& ranks = Ranks());

  const std::vector<std::string>& inputs() const { return inputs_; }
  // The feeds in the order of inputs(): views of the batch's tensors, or their numbers as the input
  // has them. Valid until the next call. Throws BadRow for a number that the input's type does not
  // have, and for a sequence that is longer than the input.
  const std::vector<Tensor>& Bind(const std::vector<Tensor>& batch);

 private:
  std::vector<std::string> inputs_;
  std::vector<size_t> column_;
  std::vector<Shape> shape_;  // of the feed; [0] is set to the batch's rows
  std::vector<bool> padded_;  // sequences, in the feed's dimension 1
  std::vector<DType> dtype_;  // of the feed
  std::vector<Tensor> feeds_;
  Ranks ranks_;
};

// The variables that the program's ops read and nobody writes or keeps: what must be fed.
std::vector<std::string> FindInputs(const ProgramDesc& program);

}  // namespace coracle
