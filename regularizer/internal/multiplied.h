#pragma once
// Weight decay of an optimizer that a parameter multiplies (Caffe's decay_mult).

#include <coracle/regularizer/regularizer.h>

#include <string>

namespace coracle {

// As AppendRegularizer, with the attr "coeff" multiplied by `by`. The table's range holds for the
// attr as it is given: the product may be of either sign.
std::string AppendMultipliedRegularizer(const UpdateContext& update, Setting setting, double by);

}  // namespace coracle
