#pragma once
// What the fuzzers run, one function for each. Each takes any bytes: what it throws, or any
// sanitizer's report, is a defect. The corpus test runs the same functions on the files in
// corpus/<target>.

#include <string_view>

namespace coracle {

// The binary reader; what it accepts is verified, pruned to a copy for evaluation, written and read
// again.
void FuzzProgramBinary(std::string_view bytes);
// The text reader; what it accepts is written as text and read again.
void FuzzProgramText(std::string_view text);
// The first byte chooses the reader: tensor stream, selected rows, .npy, .npz.
void FuzzTensor(std::string_view bytes);

}  // namespace coracle
