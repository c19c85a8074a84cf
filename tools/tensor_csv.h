#pragma once
// Tensors as a csv table. A line of names, then a line for each index of the first axis. A tensor
// [N] has the column y; one of [N, 2, 3] the columns y[0][0], y[0][1], ... y[1][2], so that the
// names tell the shape. Tensors stand side by side and have as many rows. Numbers are written so
// that they are read back the same; nan, inf and -inf are words; true is 1.

#include <coracle/framework/io/tensor_io.h>

#include <string>
#include <string_view>

namespace coracle::tools {

// Throws kInvalidArgument for tensors with different numbers of rows, complex ones, none or more
// than 2^20 columns, and names that end in ']', hold a line end or have blanks around them. A
// tensor of rank 0 is written as one of [1].
std::string TensorCsv(const NamedTensors& tensors);
// Throws kInvalidArgument "file.csv:3:2: ..." (line and cell).
NamedTensors ParseTensorCsv(std::string_view text, const std::string& source);

// Whether a finite element of `from` became infinite in `cast`, the same tensor of another dtype.
bool OverflowsIn(const Tensor& from, const Tensor& cast);

// A csv file says nothing of dtypes: gives tensors from one those of their namesakes in `others`,
// as far as these hold what the file says.
void AdoptDTypes(const NamedTensors& others, NamedTensors* from_csv);

}  // namespace coracle::tools
