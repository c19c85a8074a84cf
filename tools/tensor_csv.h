#pragma once
// Tensors as a csv table: a line of names, then a line for each index of the first axis. A tensor
// [N] has the column y; a tensor [N, 2, 3] has the columns y[0][0], y[0][1], ... y[1][2], so the
// names give the shape. All tensors share the lines, so they have the same number of rows. Numbers
// are written so that reading them gives the same values; nan, inf and -inf are words; true is 1.
// Texts are written as they are, in quotation marks where a cell needs these.

#include <coracle/framework/io/tensor_io.h>

#include <set>
#include <string>
#include <string_view>

namespace coracle::tools {

// Throws kInvalidArgument for tensors with different numbers of rows, for complex tensors, for no
// columns or more than 2^20, and for names that end in ']', contain a line end or begin or end with
// blanks, and for texts with a line end. A tensor of rank 0 is written as one of shape [1].
std::string TensorCsv(const NamedTensors& tensors);
// The tensors named in `texts` are strings, whatever their cells look like; all others are numbers.
// Throws kInvalidArgument with the line and the cell: "file.csv:3:2: ...".
NamedTensors ParseTensorCsv(std::string_view text, const std::string& source,
                            const std::set<std::string>& texts = {});

// Whether an element is finite in `from` but infinite in `cast`, the same tensor in another dtype.
bool OverflowsIn(const Tensor& from, const Tensor& cast);

// A csv file does not store dtypes. Casts each tensor read from one to the dtype of the tensor of
// the same name in `others`, if that dtype can hold its values.
void AdoptDTypes(const NamedTensors& others, NamedTensors* from_csv);

}  // namespace coracle::tools
