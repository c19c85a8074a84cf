#pragma once
// The inputs of a node as declared in the row of its importer, in one line:
//
//   "f3-5 f3-5 f1?"   floats of rank 3 to 5, the same again, optional floats of rank 1
//
// There is a word for each input. Its first letter is the kind of input:
//   V any value   T a tensor   n numbers   f floats   i integers   b bools   s strings
//   S a sequence
// A rank ("4", "3-5", "1+") follows if the importer relies on one. "?" marks an optional input; "*"
// marks a last word for any number of inputs, none of which may be absent.

#include <coracle/framework/tensor/tensor.h>

#include <string>
#include <string_view>
#include <vector>

namespace coracle::onnx {

struct InputRule {
  char holds = 'T';
  int least_rank = 0, most_rank = Shape::kMaxRank;
  bool optional = false, repeated = false;

  std::string ToString() const;  // "floats of rank 3 to 5"
};

// Throws InternalError for an invalid text.
std::vector<InputRule> ParseInputRules(std::string_view text);

}  // namespace coracle::onnx
