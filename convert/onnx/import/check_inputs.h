#pragma once
// Checks a node's inputs by the rules of its importer's row.

#include <coracle/convert/onnx/import/input_rules.h>
#include <coracle/convert/onnx/import/value.h>

#include <string>
#include <vector>

namespace coracle::onnx {

// Throws kInvalidArgument for the first of `inputs` that violates `rules`. `names` has the names of
// the values; an absent one is nullptr.
void CheckInputs(const std::vector<InputRule>& rules, const Values& inputs,
                 const std::vector<std::string>& names);

}  // namespace coracle::onnx
