#pragma once
// Whether a node's inputs are what the row of its importer says.

#include <string>
#include <vector>

#include "input_rules.h"
#include "value.h"

namespace coracle::onnx {

// Throws kInvalidArgument for the first of `inputs` that `rules` do not allow. `names` are those of
// the values; an absent one is nullptr.
void CheckInputs(const std::vector<InputRule>& rules, const Values& inputs,
                 const std::vector<std::string>& names);

}  // namespace coracle::onnx
