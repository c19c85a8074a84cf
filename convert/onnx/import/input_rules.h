#pragma once
// The inputs of a node as the row of its importer declares them, in one line:
//
//   "f3-5 f3-5 f1?"   floats of rank 3 to 5, the same again, floats of rank 1 that may be absent
//
// A word for each input. Its first letter says what the input holds:
//   V any value   T a tensor   n numbers   f floats   i integers   b bools   S a sequence
// A rank ("4", "3-5", "1+") follows where the importer relies on one. "?" ends an input that may be
// absent, "*" the last word, which stands for any number of inputs of which none is absent.

#include <coracle/framework/tensor/dtype.h>

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

// Throws InternalError for a text that is none.
std::vector<InputRule> ParseInputRules(std::string_view text);

}  // namespace coracle::onnx
