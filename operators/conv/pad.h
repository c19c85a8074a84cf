#pragma once
// pad2d and pad3d: elements around each image or volume.

#include <coracle/framework/op/op_registry.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

// Where the two types differ.
struct PadType {
  std::string type;
  int axes;  // number of padded axes
  std::string doc, input, output;
  std::string value;         // name of the attr with the value around X
  std::string paddings;      // the order of the paddings
  std::string modes, edges;  // doc of the attr mode; the modes that need elements
  std::vector<std::string> mode_names, layouts;  // layouts: channels first, then last
};

// Adds the type and its gradient.
void AddPadOps(OpRegistry& ops, const PadType& type);

}  // namespace coracle::inline internal
